package proxy

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// passed is a Succession whose admin address is a socket of the service manager.
type passed struct {
	alone
	admin net.Listener
}

func (s *passed) Listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	if flag == "admin" {
		return s.admin, nil
	}
	return s.alone.Listen(ctx, flag, addr)
}

// A socket that a service manager passes is held to what the admin address may be.
func TestAPassedAdminSocketIsChecked(t *testing.T) {
	for name, row := range map[string]struct {
		addr, token, want string
		remote            bool
	}{
		"loopback":              {addr: "127.0.0.1:0"},
		"anywhere":              {addr: ":0", want: "is not a loopback address"},
		"anywhere, if asked":    {addr: ":0", remote: true, token: "0123456789abcdef"},
		"anywhere, and a token": {addr: ":0", remote: true, want: "it needs a token"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", row.addr)
			require.NoError(t, err)
			cfg := config(t, "1/1d")
			cfg.Listen, cfg.Admin.Addr = "127.0.0.1:0", "127.0.0.1:8081"
			cfg.Admin.Remote, cfg.Admin.Token = row.remote, row.token
			cfg.Succession = &passed{admin: l}
			p, err := New(cfg)
			require.NoError(t, err)
			ctx, end := context.WithCancel(t.Context())
			end() // it would serve no longer than that
			err = p.Run(ctx)
			if row.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, row.want)
			}
		})
	}
}
