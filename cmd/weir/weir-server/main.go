// Command weir-server has the commands proxy and serve of weir, which runs it: weir proxy is
// weir-server proxy. It is a program of its own since the libraries for Redis, Prometheus and gRPC,
// which no other command needs, are two thirds of it.
package main

import (
	"os"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/servercmd"
)

func main() {
	os.Exit(cli.Run(servercmd.Root(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
