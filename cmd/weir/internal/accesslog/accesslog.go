// Package accesslog parses the access logs of web servers, one line at a time and without
// allocating. It reads the common and the combined format of nginx and Apache, with or without
// Apache's virtual host in front, and JSON logs with any field names.
package accesslog

import (
	"bytes"
	"errors"
)

// Entry is one request, parsed from one line. Its slices point into the line or into the Parser's
// own memory: they are valid until the Parser is used again or the line is overwritten.
type Entry struct {
	// Start is when the request arrived, in nanoseconds since the Unix epoch. If the log has the
	// end and the duration of a request, Start is their difference. Apache logs the arrival.
	// nginx's common format has only the end, and then Start is the end.
	Start int64

	// Coarse is set if the log has only whole seconds: the request arrived within the second that
	// begins at Start.
	Coarse bool

	// IP is the client's address as logged, without a port. It is empty only if a Map has no IP.
	IP []byte

	// User is the authenticated user, or empty.
	User []byte

	// Method is the request's method as logged, or empty without a valid request line.
	Method []byte

	// Path is the request's path as logged, without the query; escapes are kept. It is empty if the
	// request line has none, such as after a TLS handshake on a plain port.
	Path []byte

	// Query is the text after the path's question mark, as logged.
	Query []byte

	// Status is the response's status, or 0 if there is none.
	Status int

	// Rest is the text after the status in the common format. In the combined format it is the
	// size, the referer and the user agent.
	Rest []byte
}

// The reasons why a line cannot be parsed.
var (
	ErrEmpty    = errors.New("the line is empty")
	ErrFormat   = errors.New("neither the common or combined format nor JSON")
	ErrTime     = errors.New("invalid time")
	ErrJSON     = errors.New("broken JSON")
	ErrText     = errors.New("not JSON, as the given format is; lines of text have the format common")
	ErrField    = errors.New("a JSON field of the wrong type")
	ErrNoAccess = errors.New("JSON, but not a request: the expected fields have no time or no client address")
)

// Parser parses lines. It caches the last second it parsed, since the next line usually has the
// same one. The zero value reads every preset format. A Parser is not safe for concurrent use; use
// one for each goroutine.
type Parser struct {
	format Format
	maps   []*tree // the JSON maps to try
	last   int     // index in maps of the map that read the last line
	clock  clock
	json   walker
	values [slots]value
}

// NewParser returns a Parser for a format.
func NewParser(f Format) *Parser { return &Parser{format: f, maps: f.maps} }

// Parse parses one line, without its end of line, into e. It returns one of this package's errors;
// then e is undefined. Unless the format is given, Parse recognizes it for each line by the first
// byte and the fields, so a log may mix formats.
func (p *Parser) Parse(line []byte, e *Entry) error {
	line = bytes.TrimRight(line, "\r\n \t")
	switch {
	case len(line) == 0:
		return ErrEmpty
	case line[0] == '{' && !p.format.textOnly:
		return p.object(line, e)
	case p.format.jsonOnly:
		return ErrText
	}
	return p.common(line, e)
}

// cutQuery splits a request target into the path and the query.
func cutQuery(target []byte) (path, query []byte) {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		return target[:i], target[i+1:]
	}
	return target, nil
}
