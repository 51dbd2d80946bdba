package live

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/weirgo/weir/cmd/weir/internal/serve/routes"
)

// CheckAdmin reports whether only this machine can reach the admin address. It does not resolve
// names: the answer may change. If others can, it fails unless remote is set. harm is what they
// could do.
func CheckAdmin(admin string, remote bool, harm string) (local bool, err error) {
	host, _, err := net.SplitHostPort(admin)
	if err != nil {
		return false, fmt.Errorf("admin address %q: %w", admin, err)
	}
	addr, err := netip.ParseAddr(host)
	if host == "localhost" || err == nil && addr.Unmap().IsLoopback() {
		return true, nil
	}
	if !remote {
		return false, fmt.Errorf("admin address %q is not a loopback address: "+
			"anyone who can reach it could %s; say --admin-remote if that is meant", admin, harm)
	}
	return false, nil
}

// Known answers requests whose Host is another name than localhost and names with refusal, against
// DNS rebinding. IP addresses are allowed: a site cannot rebind one.
func Known(names []string, refusal string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := routes.PlainHost(r.Host)
		_, err := netip.ParseAddr(host)
		named := func(name string) bool { return routes.PlainHost(name) == host }
		if err != nil && host != "localhost" && !slices.ContainsFunc(names, named) {
			http.Error(w, refusal, http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Listen listens on the TCP address of a flag. Its error names the flag.
func Listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another address by --%s", err, flag)
	}
	return l, nil
}
