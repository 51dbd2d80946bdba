/*
Command caddy is Caddy with its standard modules and http.handlers.weir, as xcaddy builds it:

	xcaddy build --with github.com/weirgo/weir/adapters/caddylimit
*/
package main

import (
	_ "time/tzdata" // as Caddy's own command: the platform may have none

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/weirgo/weir/adapters/caddylimit"
)

func main() { caddycmd.Main() }
