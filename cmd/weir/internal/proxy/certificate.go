package proxy

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TLS names the files of the certificate. The zero value: plain HTTP.
type TLS struct {
	Cert, Key string // the files, in PEM; the first with the whole chain
}

// certEvery is the interval between checks of the files: a renewed certificate is in use at most
// this much later, without a signal.
const certEvery = 30 * time.Second

// certificate is read from its files, and again when they change. If reading fails the old
// certificate stays in use.
type certificate struct {
	files TLS
	log   *slog.Logger

	mu      sync.Mutex
	pair    *tls.Certificate // guarded by mu, as all below
	written [2]time.Time     // when the files were written
	looked  time.Time        // when they were looked at last
}

func newCertificate(files TLS, log *slog.Logger) (*certificate, error) {
	c := &certificate{files: files, log: log}
	return c, c.reload()
}

// reload reads the files now.
func (c *certificate) reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

// read reads the files. mu is held.
func (c *certificate) read() error {
	written := [2]time.Time{modified(c.files.Cert), modified(c.files.Key)}
	pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		return err
	}
	c.pair, c.written, c.looked = &pair, written, time.Now()
	return nil
}

func modified(name string) time.Time {
	info, err := os.Stat(name)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// get is tls.Config's GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= certEvery {
		c.looked = now
		if c.written != [2]time.Time{modified(c.files.Cert), modified(c.files.Key)} {
			if err := c.read(); err != nil {
				c.log.Error("the certificate cannot be reloaded; the old one is kept", "error", err.Error())
			}
		}
	}
	return c.pair, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}
}
