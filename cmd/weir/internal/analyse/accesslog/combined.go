package accesslog

import (
	"bytes"
	"strconv"
	"strings"
)

// nextQuoted returns the next field in quotes and the text after it.
func nextQuoted(s []byte) (text, rest []byte, ok bool) {
	i := bytes.IndexByte(s, '"')
	if i < 1 || s[i-1] != ' ' {
		return nil, nil, false
	}
	s = s[i+1:]
	text, ok = quoted(s)
	if !ok {
		return nil, nil, false
	}
	return text, s[len(text)+1:], true
}

// field unescapes a quoted field. Apache writes escapes such as \", \\, \n and \t, and nginx writes
// \xHH.
func field(s []byte) string {
	if string(s) == "-" {
		return ""
	}
	if bytes.IndexByte(s, '\\') < 0 {
		return string(s)
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		if s[i] == 'x' && i+2 < len(s) {
			if c, err := strconv.ParseUint(string(s[i+1:i+3]), 16, 8); err == nil {
				out = append(out, byte(c))
				i += 2
				continue
			}
		}
		c := s[i]
		if at := strings.IndexByte("ntrbvf", c); at >= 0 {
			c = "\n\t\r\b\v\f"[at]
		}
		out = append(out, c)
	}
	return string(out)
}
