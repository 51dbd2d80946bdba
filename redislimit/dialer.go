package redislimit

import (
	"context"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Dialer returns the Dialer of Options for the network settings of o, for clients whose options are
// of another type. It reads o when it dials.
//
// A dial that fails is not reported as one: it gives a connection that fails with the dial's error
// as soon as it is used. go-redis' pool counts failed dials, and after PoolSize of them tries no
// more than once a second, so that a server that is back would be noticed up to a second late. A
// dial may outlive the call that started it, and then its connection goes into the pool: a failed
// one reports that it is broken when it is taken from there, and the pool drops it.
func Dialer(o *redis.Options) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := redis.NewDialer(o)(ctx, network, addr)
		if err != nil {
			return failedDial{err}, nil
		}
		return c, nil
	}
}

// failedDial takes the place of a connection after a failed dial. It is a syscall.Conn because the
// pool checks whether those are open.
type failedDial struct{ err error }

func (f failedDial) Read([]byte) (int, error)              { return 0, f.err }
func (f failedDial) Write([]byte) (int, error)             { return 0, f.err }
func (failedDial) Close() error                            { return nil }
func (f failedDial) SyscallConn() (syscall.RawConn, error) { return nil, f.err }
func (failedDial) LocalAddr() net.Addr                     { return &net.TCPAddr{} }
func (failedDial) RemoteAddr() net.Addr                    { return &net.TCPAddr{} }
func (failedDial) SetDeadline(time.Time) error             { return nil }
func (failedDial) SetReadDeadline(time.Time) error         { return nil }
func (failedDial) SetWriteDeadline(time.Time) error        { return nil }
