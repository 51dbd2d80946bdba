// Package accesslog reads the access logs of web servers, one line at a time and without
// allocating: the common and the combined format of nginx and Apache, with or without Apache's
// virtual host in front, and JSON of any shape.
package accesslog

import (
	"bytes"
	"errors"
)

// Entry is one request, as one line logs it. Its slices point into the line or into the Parser's
// own memory: they are valid until the Parser is used again or the line is overwritten.
type Entry struct {
	// Start is when the request came, in nanoseconds since the Unix epoch. Where the log has the
	// time at which a request ended and how long it took, Start is the difference. Apache logs when
	// a request came; nginx when it ended and nothing else, and then that is Start.
	Start int64

	// Coarse is set if the log has whole seconds only: the request came somewhere in the second
	// that begins at Start.
	Coarse bool

	// IP is the client's address as logged, without a port. It is empty only if a Map has no IP.
	IP []byte

	// User is the authenticated user, empty if there is none.
	User []byte

	// Method is the request's method as logged, empty if there is no valid request line.
	Method []byte

	// Path is the request's path, without the query, as logged: escapes are kept. It is empty if
	// the client did not send a request line that has one, as in a TLS handshake on a plain port.
	Path []byte

	// Query is what follows the path's question mark, as logged.
	Query []byte

	// Status is the response's status, 0 if there is none.
	Status int

	// Rest is what follows the status in the common format: of the combined format the size, the
	// referer and the user agent.
	Rest []byte
}

// These are the reasons for which a line cannot be read.
var (
	ErrEmpty    = errors.New("the line is empty")
	ErrFormat   = errors.New("neither the common or combined format nor JSON")
	ErrTime     = errors.New("no such time")
	ErrJSON     = errors.New("broken JSON")
	ErrField    = errors.New("a JSON field of the wrong kind")
	ErrNoAccess = errors.New("JSON, but not a request: no time or no client address in the fields looked for")
)

// Parser reads lines. It remembers the last second it met, because the next line is most often of
// the same one. The zero value reads every preset format. It is not safe for concurrent use; use
// one for each goroutine.
type Parser struct {
	format Format
	maps   []*tree // those of JSON that are tried
	last   int     // index in maps of the one that read the last line
	clock  clock
	json   walker
	values [slots]value
}

// NewParser returns a Parser of one format.
func NewParser(f Format) *Parser { return &Parser{format: f, maps: f.maps} }

// Parse reads one line, without its end of line, into e. It fails with one of this package's
// errors, and e is undefined then. Unless the format is given, each line's is recognized by its
// first byte and its fields: a log that mixes formats is read.
func (p *Parser) Parse(line []byte, e *Entry) error {
	line = bytes.TrimRight(line, "\r\n \t")
	switch {
	case len(line) == 0:
		return ErrEmpty
	case line[0] == '{' && !p.format.textOnly:
		return p.object(line, e)
	case p.format.jsonOnly:
		return ErrJSON
	}
	return p.common(line, e)
}

// cutQuery cuts a request target into the path and the query.
func cutQuery(target []byte) (path, query []byte) {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		return target[:i], target[i+1:]
	}
	return target, nil
}
