package servercmd

import (
	"crypto/tls"
	"errors"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/serve/envoy"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
)

// xdsFlags name the xDS server that has the rules.
type xdsFlags struct {
	addr, node, ca, cert, key string
	allowEmpty                bool
}

func (f *xdsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.addr, "xds", "",
		"the `address` of an xDS server that has the rules, instead of --rules")
	flags.StringVar(&f.node, "xds-node", "default", "the `name` of this server for the xDS server")
	flags.StringVar(&f.ca, "xds-ca", "",
		"use TLS for xDS; the `file` has the authority of the server's certificate")
	flags.StringVar(&f.cert, "xds-cert", "", "the `file` with the certificate for the xDS server")
	flags.StringVar(&f.key, "xds-key", "", "the `file` with its key")
	flags.BoolVar(&f.allowEmpty, "xds-allow-empty", false,
		"accept an answer without limits in place of one with limits")
}

// set makes cfg receive the rules if there is an address.
func (f *xdsFlags) set(cfg *envoy.Config) error {
	switch {
	case f.addr == "" && *f != xdsFlags{node: f.node}:
		return errors.New("--xds-ca, --xds-cert, --xds-key and --xds-allow-empty need --xds")
	case f.addr == "":
		return nil
	case (f.cert == "") != (f.key == "") || f.cert != "" && f.ca == "":
		return errors.New("give --xds-cert, --xds-key and --xds-ca together")
	}
	config := envoy.XDSConfig{Addr: f.addr, Node: f.node, Log: cfg.Log,
		Loader: cfg.Loader}
	if f.ca != "" {
		pool, err := certificates(f.ca)
		if err != nil {
			return err
		}
		config.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	if f.cert != "" {
		latest, err := live.NewCertificate(f.cert, f.key, cfg.Log)
		if err != nil {
			return err
		}
		config.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return latest.Get(nil)
		}
	}
	client, err := envoy.NewXDS(config)
	if err != nil {
		return err
	}
	cfg.Rules, cfg.AllowEmpty = client.Run, f.allowEmpty
	return nil
}
