package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirgo/weir/rules/describe"
)

// Entry is one key and value of a descriptor.
type Entry = describe.Entry

// FormatEntries formats entries as one line: key=value, joined by commas. A key or value that
// contains a comma, an equals sign, a quote, a space or an unprintable character is quoted as in
// Go. An empty value has no equals sign. [ParseEntries] is the inverse.
func FormatEntries(entries []Entry) string {
	words := make([]string, len(entries))
	for i, e := range entries {
		words[i] = quote(e.Key)
		if e.Value != "" {
			words[i] += "=" + quote(e.Value)
		}
	}
	return strings.Join(words, ",")
}

// quote returns a key or value as [FormatEntries] writes it.
func quote(s string) string {
	special := func(r rune) bool {
		return strings.ContainsRune(",=\" \uFFFD", r) || !strconv.IsPrint(r) // U+FFFD: invalid UTF-8
	}
	if s == "" || strings.ContainsFunc(s, special) {
		return strconv.Quote(s)
	}
	return s
}

// ParseEntries parses the format of [FormatEntries]. It also accepts words that are quoted without
// need, and unquoted equals signs in a value.
func ParseEntries(s string) ([]Entry, error) {
	var entries []Entry
	for rest := s; ; {
		var e Entry
		var err error
		e.Key, rest, err = cutWord(rest, ",=")
		if err == nil && e.Key == "" {
			err = errors.New("empty key; want key=value,key=value")
		}
		if after, ok := strings.CutPrefix(rest, "="); ok && err == nil {
			e.Value, rest, err = cutWord(after, ",")
		}
		if err != nil {
			return nil, fmt.Errorf("rules: descriptor %q: %w", s, err)
		}
		entries = append(entries, e)
		if rest == "" {
			return entries, nil
		}
		rest = rest[1:] // the comma
	}
}

// cutWord returns the first word of s and the rest of s, which is empty or begins with one of
// stops.
func cutWord(s, stops string) (word, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		i := strings.IndexAny(s, stops)
		if i < 0 {
			return s, "", nil
		}
		return s[:i], s[i:], nil
	}
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", fmt.Errorf("bad quoting in %s", s)
	}
	word, err = strconv.Unquote(quoted)
	if err != nil {
		return "", "", fmt.Errorf("bad quoting in %s", s)
	}
	rest = s[len(quoted):]
	if rest != "" && !strings.Contains(stops, rest[:1]) {
		return "", "", fmt.Errorf("%q follows a closing quote", rest)
	}
	return word, rest, nil
}
