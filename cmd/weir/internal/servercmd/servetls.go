package servercmd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/weirgo/weir/cmd/weir/internal/live"
)

// setTLS sets the certificates of the gRPC service.
func (f *serveFlags) setTLS() error {
	if f.cert == "" && f.key == "" {
		if f.clientCA != "" {
			return errors.New("--tls-client-ca needs --tls-cert and --tls-key")
		}
		return nil
	}
	certificate, err := live.NewCertificate(f.cert, f.key, f.cfg.Log)
	if err != nil {
		return err
	}
	f.cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.Get}
	if f.clientCA == "" {
		return nil
	}
	f.cfg.TLS.ClientAuth = tls.RequireAndVerifyClientCert
	f.cfg.TLS.ClientCAs, err = certificates(f.clientCA)
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
