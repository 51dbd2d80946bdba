package redislimit_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// ParseURL applies the settings of a URL, and New accepts the result.
func TestParseURL(t *testing.T) {
	o, err := redislimit.ParseURL(
		"rediss://user:secret@192.0.2.1:6380/3?pool_size=7&max_retries=5&read_timeout=9s")
	require.NoError(t, err)
	assert.Equal(t, "192.0.2.1:6380", o.Addr)
	assert.Equal(t, "user", o.Username)
	assert.Equal(t, "secret", o.Password)
	assert.Equal(t, 3, o.DB)
	assert.Equal(t, 7, o.PoolSize)
	assert.NotNil(t, o.TLSConfig)
	storeOn(t, dial(t, o), redislimit.Config{})
}

// A server with TLS, whose certificate no authority has signed, decides if the URL says that it
// need not be checked, and only then.
func TestTLSByURL(t *testing.T) {
	server := redistest.Start(t)
	issuer := httptest.NewTLSServer(nil)
	defer issuer.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: issuer.TLS.Certificates})
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				backend, err := net.Dial("tcp", server.Addr)
				if err != nil {
					return
				}
				defer backend.Close()
				go func() { _, _ = io.Copy(backend, client) }()
				_, _ = io.Copy(client, backend)
			}()
		}
	}()
	for parameter, want := range map[string]string{"?skip_verify=true": "", "": "certificate"} {
		o, err := redislimit.ParseURL("rediss://" + l.Addr().String() + parameter)
		require.NoError(t, err)
		store := storeOn(t, dial(t, o), redislimit.Config{Timeout: 10 * time.Second})
		ask := func() error {
			_, err := store.FixedWindow().Run(t.Context(),
				&weir.Request{Key: "a", Limit: 1, Duration: time.Hour})
			return err
		}
		err = ask()
		for errors.Is(err, redislimit.ErrTimeout) { // a busy machine needs longer than DialTimeout
			err = ask()
		}
		if want == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, want)
		}
	}
}

func TestParseURLDoesNotQuoteThePassword(t *testing.T) {
	_, err := redislimit.ParseURL("http://user:secret@192.0.2.1")
	require.ErrorContains(t, err, "want redis://")
	assert.NotContains(t, err.Error(), "secret")
}
