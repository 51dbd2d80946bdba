//go:build !unix

package servercmd

// onHandOver does nothing: there is no such signal.
func onHandOver(func() error) (stop func()) { return func() {} }
