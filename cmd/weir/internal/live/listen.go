package live

import (
	"context"
	"fmt"
	"net"
)

// Listen listens on the TCP address of a flag. Its error names the flag.
func Listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another address by --%s", err, flag)
	}
	return l, nil
}
