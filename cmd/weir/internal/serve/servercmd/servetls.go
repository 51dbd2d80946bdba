package servercmd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/serve/envoy"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
)

// tlsFlags are the flags for the certificates of the gRPC service.
type tlsFlags struct{ cert, key, clientCA string }

func (f *tlsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, "tls-cert", "", "the `file` with the certificate of the gRPC service")
	flags.StringVar(&f.key, "tls-key", "", "the `file` with its key")
	flags.StringVar(&f.clientCA, "tls-client-ca", "",
		"accept only clients with a certificate signed by an authority in this `file`")
}

// set sets the certificates.
func (f *tlsFlags) set(cfg *envoy.Config) error {
	if f.cert == "" && f.key == "" {
		if f.clientCA != "" {
			return errors.New("--tls-client-ca needs --tls-cert and --tls-key")
		}
		return nil
	}
	certificate, err := live.NewCertificate(f.cert, f.key, cfg.Log)
	if err != nil {
		return err
	}
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.Get}
	if f.clientCA == "" {
		return nil
	}
	cfg.TLS.ClientAuth = tls.RequireAndVerifyClientCert
	cfg.TLS.ClientCAs, err = certificates(f.clientCA)
	return err
}

// certificates reads the certificates in a file.
func certificates(name string) (*x509.CertPool, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no certificate in %s", name)
	}
	return pool, nil
}
