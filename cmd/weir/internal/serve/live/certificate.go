package live

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// retryEvery is the interval between attempts to read files that have changed and are invalid.
const retryEvery = time.Second

// Certificate is a certificate in files, which are read again when they have changed. If they
// cannot be read, the last one stays in use: a renewal may have replaced only one of them.
type Certificate struct {
	files [2]string // the certificate and its key
	log   *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate // guarded by mu, as all below
	read   [2]os.FileInfo   // the files of pair
	failed time.Time        // the last attempt that failed
}

// NewCertificate reads the certificate in two files, in PEM; the first has the whole chain.
func NewCertificate(cert, key string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{files: [2]string{cert, key}, log: log}
	return c, c.Reload()
}

// Reload reads the files now.
func (c *Certificate) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load()
}

// load reads the files. mu is held.
func (c *Certificate) load() (err error) {
	var read [2]os.FileInfo
	for i, name := range c.files {
		read[i], err = os.Stat(name)
		if err != nil {
			return err
		}
	}
	pair, err := tls.LoadX509KeyPair(c.files[0], c.files[1])
	if err != nil {
		return err
	}
	if c.pair != nil && len(pair.Certificate) < len(c.pair.Certificate) { // it may have been cut
		c.log.Warn("the chain of the certificate is shorter than before", "certificates",
			len(pair.Certificate), "certificates_before", len(c.pair.Certificate))
	}
	c.pair, c.read = &pair, read
	return nil
}

// changed reports whether one of the files is not the one that was read. mu is held.
func (c *Certificate) changed() bool {
	for i, was := range c.read {
		is, err := os.Stat(c.files[i])
		if err != nil || !os.SameFile(was, is) || !was.ModTime().Equal(is.ModTime()) ||
			was.Size() != is.Size() {
			return true
		}
	}
	return false
}

// Get returns the certificate that the files have now. It is tls.Config's GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed() && time.Since(c.failed) >= retryEvery {
		if err := c.load(); err != nil {
			c.failed = time.Now()
			c.log.Error("the certificate cannot be reloaded; the old one is kept", "error", err.Error())
		}
	}
	return c.pair, nil
}
