package servers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
)

// setTLS sets the certificates of the gRPC service.
func (f *serveFlags) setTLS() error {
	if f.cert == "" && f.key == "" {
		if f.clientCA != "" {
			return errors.New("--tls-client-ca needs --tls-cert and --tls-key")
		}
		return nil
	}
	certificate, err := latestCertificate(f.cert, f.key, f.cfg.Log)
	if err != nil {
		return err
	}
	f.cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}
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

// latestCertificate returns a GetCertificate that reads the files for each connection, so that a
// renewed certificate is used. If they cannot be read, the last one stays in use: a renewal may
// have replaced only one of them.
func latestCertificate(cert, key string, log *slog.Logger) (
	get func(*tls.ClientHelloInfo) (*tls.Certificate, error), err error,
) {
	first, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	var latest atomic.Pointer[tls.Certificate]
	latest.Store(&first)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			log.Error("the certificate cannot be read; the old one is kept", "error", err.Error())
			return latest.Load(), nil
		}
		latest.Store(&pair)
		return &pair, nil
	}, nil
}
