// Package accesslog reads the access logs of web servers, one line at a time and without allocating: the common and the
// combined format of nginx and Apache, with or without Apache's virtual host in front, and Caddy's JSON.
package accesslog

import (
	"bytes"
	"errors"
)

// Entry is what one line says about one request. Its slices point into the line or into the Parser's own memory: they
// hold until the Parser is used again or the line is overwritten.
type Entry struct {
	// Start is when the request came, in nanoseconds since the Unix epoch. Caddy logs when a request was over and how
	// long it took, and Start is the difference. Apache logs when it came; nginx when it was over and no more, and
	// then that is Start.
	Start int64

	// Coarse is set if the log tells whole seconds only: the request came somewhere in the second that begins at Start.
	Coarse bool

	// IP is the client's address as logged. It is never empty and holds no space.
	IP []byte

	// User is the authenticated user, empty if there is none.
	User []byte

	// Path is the request's path, without the query, as logged: escapes are kept. It is empty if the client did not
	// send a request line that has one, as in a TLS handshake on a plain port.
	Path []byte
}

// These are the reasons for which a line cannot be read.
var (
	ErrEmpty    = errors.New("the line is empty")
	ErrFormat   = errors.New("neither the common or combined format nor Caddy's JSON")
	ErrTime     = errors.New("no such time")
	ErrJSON     = errors.New("broken JSON")
	ErrField    = errors.New("a JSON field of the wrong kind")
	ErrNoAccess = errors.New("JSON, but not a request: request, remote_ip or ts is missing")
)

// Parser reads lines. It remembers the last second it met, because the next line is most often of the same one. The
// zero value is ready. It is not safe for concurrent use; use one for each file.
type Parser struct {
	clock clock
	json  walker
}

// Parse reads one line, without its end of line, into e. It fails with one of this package's errors, and e is undefined
// then. It tells the format by the first byte: a log that mixes them is read.
func (p *Parser) Parse(line []byte, e *Entry) error {
	line = bytes.TrimRight(line, "\r\n \t")
	if len(line) == 0 {
		return ErrEmpty
	}
	if line[0] == '{' {
		return p.caddy(line, e)
	}
	return p.common(line, e)
}

// withoutQuery cuts a request target before its query.
func withoutQuery(target []byte) []byte {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		return target[:i]
	}
	return target
}
