package accesslog

import (
	"bytes"
	"regexp"
)

// pairs parses a line in logfmt, KEY=VALUE KEY="VALUE"…, and calls pair for each. Each word must be
// a pair.
func pairs(line []byte, pair func(key, value []byte)) error {
	for len(line) > 0 {
		n := keyLen(line)
		if n == 0 || n == len(line) || line[n] != '=' {
			return ErrFormat
		}
		key, value := line[:n], line[n+1:]
		if len(value) > 0 && value[0] == '"' {
			text, ok := quoted(value[1:])
			if !ok {
				return ErrFormat
			}
			line = value[len(text)+2:]
			value = []byte(field(text))
			if len(line) > 0 && line[0] != ' ' {
				return ErrFormat
			}
		} else {
			value, line, _ = cutSpace(value)
		}
		line = bytes.TrimLeft(line, " ")
		pair(key, value)
	}
	return nil
}

// keyLen returns the length of the key of logfmt that begins text.
func keyLen(text []byte) int {
	for i, c := range text {
		switch {
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9', c == '_', c == '-', c == '.', c == '@':
		default:
			return i
		}
	}
	return len(text)
}

// isLogfmt reports whether a line begins as one in logfmt.
func isLogfmt(line []byte) bool {
	n := keyLen(line)
	return n > 0 && n < len(line) && line[n] == '='
}

// logfmt parses a line in logfmt. Its fields are those of the maps that JSON is read by.
func (p *Parser) logfmt(line []byte, e *Entry) error {
	maps := logfmtTrees
	if p.format.given {
		maps = p.format.maps
	}
	var err error
	for _, t := range maps {
		p.reading.values = [kinds]value{}
		err = pairs(line, func(key, text []byte) { t.pair(&p.reading, key, text) })
		if err != nil {
			return err
		}
		if len(p.stamp) > 0 && p.reading.values[kindTime].rank+p.reading.values[kindStart].rank == 0 {
			p.reading.values[kindTime] = value{text: p.stamp, str: true, rank: 1}
		}
		err = p.reading.entry(&t.schema, e)
		if err != ErrNoAccess {
			return err
		}
	}
	return err
}

// stamped finds the time in the prefix of a line.
var stamped = regexp.MustCompile(rfc3339)
