// Package accesslog parses the access logs of web servers, one line at a time and, for the common,
// the combined and JSON formats, without allocating. It reads the common and the combined format of
// nginx and Apache, with or without Apache's virtual host in front; JSON with any field names; W3C
// extended logs; and other text by its log_format.
//
// Containers and log collectors put their own words in front of a line. Parse removes those that it
// knows. A line of text that still leaves open which of its words is the client is an error, so
// that a part of a prefix never becomes a caller.
package accesslog

import (
	"bytes"
	"errors"
	"strings"
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

	// Took is how long the request took, in nanoseconds, or NoDuration if the line does not say.
	Took int64

	// Logged is the instant as the line has it: the end of the request if AtEnd is set, otherwise its
	// arrival. If Coarse is set, it is within the second that begins at Logged. A line without a
	// duration may have the end too, as that of nginx.
	Logged int64
	AtEnd  bool

	// IP is the address of the TCP peer as logged, without a port. It is empty only if a map of
	// fields has no ip.
	IP []byte

	// IPv4 is set if IP is an IPv4 address as net/netip formats it.
	IPv4 bool

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

	forwarded      []byte // X-Forwarded-For
	referer, agent []byte
	rest           []byte // of the common format, the text after the status
}

// NoDuration is the Took of a line without a duration.
const NoDuration = -1

// The reasons why a line cannot be parsed.
var (
	ErrEmpty  = errors.New("the line is empty")
	ErrFormat = errors.New("neither the common or combined format nor JSON; --format and " +
		"--log-format name others")
	ErrLayout = errors.New("not in the given format")
	ErrCaller = errors.New("it is not clear which word is the client: give --log-format or " +
		"--strip-prefix")
	ErrList     = errors.New("several addresses: give --trust with those of your proxies")
	ErrTime     = errors.New("invalid time")
	ErrJSON     = errors.New("broken JSON")
	ErrText     = errors.New("not JSON, as the given format is; lines of text have the format common")
	ErrField    = errors.New("a JSON field of the wrong type")
	ErrNoAccess = errors.New("not a request: the expected fields have no time or no client address; " +
		"--map names others")

	// ErrDirective is not a failure: the line describes the lines after it.
	ErrDirective = errors.New("a directive of a W3C log")
)

// Parser parses lines. It caches the last second it parsed, since the next line usually has the
// same one. The zero value reads what the zero Format recognizes. A Parser is not safe for
// concurrent use; use one for each goroutine. How it reads the common format and logfmt stands in
// files of their own.
type Parser struct {
	format  Format
	maps    []*tree // the JSON maps to try
	last    int     // index in maps of the map that read the last line
	fields  *layout // of a W3C log
	reading reading
	stamp   []byte // the time in the prefix of the line, for logfmt without one
	line    []byte // the last one, without wrappers
	keyed   bool   // it has keys, in JSON or logfmt
}

// NewParser returns a Parser for a format.
func NewParser(f Format) *Parser {
	return &Parser{format: f, maps: f.maps, fields: f.fields, reading: reading{lists: f.Lists}}
}

// maxWrappers bounds the prefixes of a line. Docker Compose with timestamps writes two.
const maxWrappers = 4

// Parse parses one line, without its end of line, into e. It returns one of this package's errors;
// then e is undefined. Unless the format is given, Parse recognizes it for each line by the first
// byte and the fields, so a log may mix formats.
func (p *Parser) Parse(line []byte, e *Entry) error {
	if p.format.Prefix != nil {
		line = line[len(p.format.Prefix.Find(line)):]
	}
	p.stamp = nil
	return p.unwrapped(line, e, maxWrappers)
}

// unwrapped parses a line that at most so many wrappers are around. A line in a given format of
// text is parsed without a wrapper first: the words of a wrapper could stand for fields.
func (p *Parser) unwrapped(line []byte, e *Entry, most int) error {
	given := p.format.layout != nil
	err := ErrLayout
	if !given {
		err = p.parse(line, e)
	}
	if most > 0 && err != nil && err != ErrDirective {
		if inner := p.unwrap(line); inner != nil {
			err = p.unwrapped(inner, e, most-1)
		}
	}
	if given && err != nil {
		return p.parse(line, e)
	}
	return err
}

// parse parses a line without a wrapper. It chooses the format by the one that is given, or else by
// the first byte.
func (p *Parser) parse(line []byte, e *Entry) error {
	for len(line) > 0 && line[len(line)-1] <= ' ' {
		line = line[:len(line)-1]
	}
	p.line, p.keyed = line, false
	switch {
	case len(line) == 0:
		return ErrEmpty
	case p.format.layout != nil:
		return p.text(p.format.layout, line, e)
	case line[0] == '{' && !p.format.textOnly:
		p.keyed = true
		return p.object(line, e)
	case !p.format.textOnly && isLogfmt(line):
		if err := p.logfmt(line, e); err != ErrFormat {
			p.keyed = true
			return err
		}
		return p.others(line, e)
	}
	return p.others(line, e)
}

// others parses a line of text that is not in a given layout, nor in logfmt.
func (p *Parser) others(line []byte, e *Entry) error {
	switch {
	case p.format.jsonOnly:
		return ErrText
	case line[0] == '#' && !p.format.textOnly:
		return p.directive(line)
	case p.fields == nil:
		return p.common(line, e)
	}
	return p.text(p.fields.of(line), line, e)
}

// unwrap returns a line without the first wrapper around it, or nil if there is none.
func (p *Parser) unwrap(line []byte) []byte {
	if len(line) > 0 && line[0] == '{' {
		if p.reading.walk(wrapped, line) != nil || p.reading.values[kindLine].rank == 0 {
			return nil
		}
		return bytes.Clone(p.reading.values[kindLine].text)
	}
	for _, w := range wrappers {
		if prefix := w.FindIndex(line); prefix != nil {
			if at := stamped.Find(line[:prefix[1]]); at != nil {
				p.stamp = at
			}
			return line[prefix[1]:]
		}
	}
	return unwrapConsole(line)
}

// directive reads a line of a W3C log that is not a request.
func (p *Parser) directive(line []byte) error {
	if fields, ok := bytes.CutPrefix(line, fieldsDirective); ok && len(bytes.TrimSpace(fields)) > 0 {
		p.fields = w3c(string(fields), p.format.more)
	}
	return ErrDirective
}

// Begin starts a part of a log that the directive fields precedes. It is nil if none does.
func (p *Parser) Begin(fields []byte) {
	p.fields = p.format.fields
	if fields != nil {
		_ = p.directive(fields) // not a request
	}
}

// Addresses calls yield for each field that begins with an address in the line that Parse has read
// last, if that returned no error.
func (p *Parser) Addresses(yield func(Field, Address)) {
	found := func(f Field, text []byte) {
		if a, ok := ParseAddress(text); ok {
			yield(f, a)
		}
	}
	switch {
	case p.keyed && p.line[0] == '{':
		_ = p.reading.json.whole(p.line, func() error { return p.reading.json.leaves("", found) })
	case p.keyed:
		_ = pairs(p.line, func(key, text []byte) { found(Field{Key: string(key)}, text) })
	case p.fields != nil && p.format.layout == nil:
		l := p.fields.of(p.line)
		for i, text := range bytes.Split(p.line, l.parts[0].until) {
			if i < len(l.parts) {
				found(Field{Key: l.parts[i].name}, text)
			}
		}
	default:
		places(p.line, func(n int, text []byte) { found(Field{Place: n}, text) })
	}
}

// object parses a JSON line. It first tries the map that parsed the previous line, then the others.
func (p *Parser) object(line []byte, e *Entry) error {
	if p.maps == nil {
		p.maps = presetTrees
	}
	for i := -1; i < len(p.maps); i++ {
		at := i
		if i < 0 {
			at = p.last
		}
		err := p.reading.walk(p.maps[at], line)
		if err == nil {
			err = p.reading.entry(&p.maps[at].schema, e)
		}
		if err == nil {
			p.last = at
		}
		if err != ErrNoAccess {
			return err
		}
	}
	return ErrNoAccess
}

// text parses a line by a layout. Some servers pad fields: if the line is not in the layout, spaces
// before fields that are not read are taken for padding.
func (p *Parser) text(l *layout, line []byte, e *Entry) error {
	err := l.read(&p.reading, line, false)
	if err == nil {
		err = p.reading.entry(&l.schema, e)
	}
	if err != nil && l.names == "" && bytes.Contains(line, []byte("  ")) &&
		l.read(&p.reading, line, true) == nil {
		return p.reading.entry(&l.schema, e)
	}
	return err
}

// cutQuery splits a request target into the path and the query. It removes the scheme and the host
// of an absolute target.
func cutQuery(target []byte) (path, query []byte) {
	if len(target) > 0 && target[0] != '/' {
		if i := bytes.Index(target, []byte("://")); i > 0 && bytes.IndexByte(target[:i], '/') < 0 {
			target = target[i+3:]
			i = bytes.IndexAny(target, "/?")
			if i < 0 {
				return []byte("/"), nil
			}
			target = target[i:]
		}
	}
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		return target[:i], target[i+1:]
	}
	return target, nil
}

// Forwarded returns the X-Forwarded-For of the request, and whether the log has such a field. In
// the combined format it is the quoted field after the user agent, as in the configuration that
// nginx comes with, if that has the address of a client. Traefik and HAProxy write the name of a
// router or of a frontend there, and others $upstream_addr.
func (e *Entry) Forwarded() (list string, logged bool) {
	if len(e.forwarded) > 0 {
		return string(e.forwarded), true
	}
	text, ok := e.afterStatus(2)
	text = forwardedList(text)
	list = field(text)
	last := text[bytes.LastIndexByte(text, ',')+1:]
	if list != "" && !plainIPv4(bytes.TrimPrefix(last, space)) && !namesClient(list) {
		return "", false
	}
	return list, ok
}

// PortAfterAgent returns the port of the last address in X-Forwarded-For, if that is the quoted
// field after the user agent. If all requests have the same one, the addresses are those of
// upstreams.
func (e *Entry) PortAfterAgent() (port string) {
	list, logged := e.Forwarded()
	last := []byte(list[strings.LastIndexByte(list, ',')+1:])
	if !logged || len(e.forwarded) > 0 || !hasPort(last) {
		return ""
	}
	return string(last[bytes.LastIndexByte(last, ':')+1:])
}

// Headers returns the unescaped referer and user agent. They are empty if the log does not have
// them or has a hyphen.
func (e *Entry) Headers() (referer, agent string) {
	if e.rest == nil {
		return field(e.referer), field(e.agent)
	}
	first, _ := e.afterStatus(0)
	second, _ := e.afterStatus(1)
	return field(first), field(second)
}

// afterStatus returns a field in quotes after the status, by its index.
func (e *Entry) afterStatus(i int) (text []byte, ok bool) {
	rest := e.rest
	for range i + 1 {
		text, rest, ok = nextQuoted(rest)
	}
	return text, ok
}
