package accesslog

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// Field is a field of a log's lines, by its key or, in lines of text, by its place.
type Field struct {
	Key   string // in JSON, logfmt and W3C logs
	Place int    // from 1; what is in quotes or brackets is one field
}

// String returns the field for a message.
func (f Field) String() string {
	if f.Key == "" {
		return fmt.Sprint("number ", f.Place, " of a line")
	}
	return f.Key
}

// Flag returns the flag that reads the field as X-Forwarded-For.
func (f Field) Flag() string {
	if f.Key == "" {
		return "--log-format with $http_x_forwarded_for in its place"
	}
	return "--map xff=" + f.Key
}

// IsForwarded reports whether the field has the name of one with the address of a client.
func (f Field) IsForwarded() bool {
	return forwardedRank(f.Key[strings.LastIndexByte(f.Key, '.')+1:]) > 0
}

// servers are words in the names of fields whose addresses are not those of clients.
var servers = []string{"upstream", "server", "backend", "local", "target", "destination", "dest",
	"dst", "origin", "node", "pod", "service", "listen", "bind", "hostname", "authority", "version",
	"s"}

// IsServer reports whether the field has the name of one with the address of a server.
func (f Field) IsServer() bool {
	var words strings.Builder
	lower := false
	for _, c := range f.Key {
		if unicode.IsUpper(c) && lower {
			words.WriteByte(' ')
		}
		lower = unicode.IsLower(c)
		words.WriteRune(unicode.ToLower(c))
	}
	isOther := func(c rune) bool { return !unicode.IsLetter(c) }
	return !f.IsForwarded() && slices.ContainsFunc(strings.FieldsFunc(words.String(), isOther),
		func(word string) bool { return slices.Contains(servers, word) })
}

// Address is an address that begins a field.
type Address struct {
	netip.Addr
	Port string // behind it, or empty
}

// ParseAddress returns the address that begins text, as X-Forwarded-For and Forwarded do.
func ParseAddress(text []byte) (a Address, ok bool) {
	text = forwardedList(text)
	if i := bytes.IndexAny(text, ", "); i >= 0 {
		text = text[:i]
	}
	if len(text) == 0 || strings.IndexByte("0123456789abcdefABCDEF:[", text[0]) < 0 {
		return a, false
	}
	addr, err := netip.ParseAddr(string(withoutPort(text)))
	a.Addr = addr
	if hasPort(text) {
		a.Port = string(text[bytes.LastIndexByte(text, ':')+1:])
	}
	return a, err == nil
}

// places calls found for the fields of a line of text, which spaces separate: what is in quotes,
// brackets or braces is one field. Bars separate the headers that HAProxy captures.
func places(line []byte, found func(n int, text []byte)) {
	for n := 1; ; n++ {
		line = bytes.TrimLeft(line, " \t")
		if len(line) == 0 {
			return
		}
		var text []byte
		text, line = cutPlace(line)
		for part := range bytes.SplitSeq(text, []byte("|")) {
			found(n, bytes.Trim(part, `"'()`))
		}
	}
}

// cutPlace splits a line of text after its first field, which it returns without quotes and
// brackets, and without a name and an equals sign.
func cutPlace(line []byte) (text, rest []byte) {
	if n := keyLen(line); n > 0 && n < len(line) && line[n] == '=' &&
		!bytes.EqualFold(line[:n], []byte("for")) {
		line = line[n+1:]
	}
	end := byte(' ')
	if len(line) > 0 {
		switch line[0] {
		case '"':
			if text, ok := quoted(line[1:]); ok {
				return text, line[len(text)+2:]
			}
		case '[':
			end = ']'
		case '{':
			end = '}'
		}
	}
	i := bytes.IndexByte(line, end)
	switch {
	case i < 0 && end == ' ':
		return line, nil
	case i < 0:
		return cutFirst(line)
	case end != ' ':
		return line[1:i], line[i+1:]
	}
	for i > 0 && line[i-1] == ',' { // a list of addresses has a space after each comma
		next := bytes.IndexByte(line[i+1:], ' ')
		if next < 0 {
			return line, nil
		}
		i += 1 + next
	}
	return line[:i], line[i:]
}

// cutFirst splits a line after its first word.
func cutFirst(line []byte) (word, rest []byte) {
	word, rest, _ = cutSpace(line)
	return word, rest
}
