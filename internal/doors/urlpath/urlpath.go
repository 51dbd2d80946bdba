// Package urlpath reads the path of a request in every way in which a server behind the limiter may
// read it.
//
// Servers disagree about paths. /search/..;/foo is /foo for Tomcat and a path below /search/ for
// Express; docs/SECURITY.md has the table and its sources. A limit that knows one of these readings
// is evaded on servers with another one. So a limit on a path applies to a request if any of its
// [Readings] matches, and a count for each path is kept under [Canonical], or under the Key of each
// reading where servers contradict each other. [Normalize] is for servers that may be given a path
// other than the client's: it removes the differences that it can, and refuses the others.
//
// All functions take the path as it is in the request line: escaped, and without the query.
package urlpath

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLen is the longest path that is read. Servers commonly accept as much in a request line.
const MaxLen = 8 << 10

// Bounds on the work for one path: on the texts that steps make of it, and on the bytes of all that
// is written, in which equal texts count each time. No path of a client that has no reason to hide
// it comes near them: it has one to six readings, of up to 13 texts.
const (
	maxTexts = 14
	maxBytes = 40 << 10
)

// The reasons why Readings refuses a path.
var (
	ErrReadings = errors.New("the path can be read in too many ways")
	ErrLen      = fmt.Errorf("the path is over %d bytes long", MaxLen)
)

// Status returns the status of the response to a request whose path is refused with err.
func Status(err error) int {
	if errors.Is(err, ErrLen) {
		return http.StatusRequestURITooLong
	}
	return http.StatusBadRequest
}

// Reading is one way to read a path.
type Reading struct {
	// Path is what a server makes of the path: segments separated by slashes, in which only the
	// bytes that need it are escaped. A slash that the server takes for a part of a segment is %2F.
	// Letter case, empty segments, dot segments and final slashes are as the server leaves them; for
	// servers that ignore case or final slashes, see Lower and TrimSlashes.
	Path string

	// Key is the Canonical path of this reading. It is the same for all readings of a path unless
	// servers contradict each other.
	Key string
}

// maxDecodings is how often a path is decoded: once by a proxy or a framework, and once by a
// program.
const maxDecodings = 2

// text is a path after some steps of reading it.
type text struct {
	string
	decoded int // maxDecodings if there is nothing to decode, so that equal readings are one text
}

// steps are the steps of which servers' readings consist. Any number of them may follow each other
// in any order, with up to maxDecodings decodings.
var steps = [...]struct {
	step
	decodes int
}{
	decodes:       {decode, 1},
	drops:         {dropParameters, 0},
	unbackslashes: {backslashesToSlashes, 0},
	merges:        {mergeSlashes, 0},
	removes:       {removeDots, 0},
	{decodeSegments, 1},
	{decodeUnreserved, 0},
	{unescapeSlashes, 0},
	{removeEscapedDots, 0},
	{dropLeadingSlashes, 0},
	{dropAuthority, 0},
}

// The steps of the canonical reading.
const (
	decodes = iota
	drops
	unbackslashes
	merges
	removes
)

// canonical takes the steps of the canonical reading from a text that was decoded so often.
func canonical[T any](t T, decoded int, take func(T, int) T) T {
	for n := decoded; ; n++ {
		t = take(t, drops)
		if n == maxDecodings {
			break
		}
		t = take(t, decodes)
	}
	return take(take(take(t, unbackslashes), merges), removes)
}

// keyOf returns the Key of a text after the steps of the canonical reading.
func keyOf(s string) string { return escape(fold(s)) }

// Readings appends the readings of a path to dst, without duplicates. A plain path has one, and
// takes one look at its bytes and no memory, unless it has capital letters. It fails with ErrLen
// before it looks at the path, or with ErrReadings once the work exceeds the bounds.
func Readings(dst []Reading, path string) ([]Reading, error) {
	if len(path) > MaxLen {
		return dst, ErrLen
	}
	if plain(path) {
		return append(dst, Reading{path, fold(path)}), nil
	}
	var w work
	return w.readings(dst, path, work{maxTexts, maxBytes})
}

// work counts what reading a path has taken: the texts, and the bytes that were written.
type work struct{ texts, bytes int }

func (w work) exceeds(most work) bool { return w.texts > most.texts || w.bytes > most.bytes }

// node is a text, and where the steps lead to.
type node struct {
	text
	to  [len(steps)]int // the index of a node, its own if a step does not apply
	key string          // set if it is canonical
}

// readings is Readings of a path that is not plain, within these bounds.
func (w *work) readings(dst []Reading, path string, most work) ([]Reading, error) {
	var buf [maxTexts]node
	path = step(decodeInert).of(rooted(path))
	all := append(buf[:0], node{text: text{path, decodings(0, strings.IndexByte(path, '%') >= 0)}})
	*w = work{1, len(path)}
	b := make([]byte, 0, 2*len(path))
	for i := 0; i < len(all); i++ {
		for s, step := range steps {
			all[i].to[s] = i
			decoded := all[i].decoded + step.decodes
			if decoded > maxDecodings {
				continue
			}
			next := step.step(b[:0], all[i].string)
			if next == nil {
				continue
			}
			decoded = decodings(decoded, bytes.IndexByte(next, '%') >= 0)
			to := slices.IndexFunc(all, func(n node) bool {
				return n.decoded == decoded && n.string == string(next)
			})
			if to < 0 {
				to, all = len(all), append(all, node{text: text{string(next), decoded}})
			}
			all[i].to[s] = to
			w.texts, w.bytes = len(all), w.bytes+len(next)
			if w.exceeds(most) {
				return dst, ErrReadings
			}
		}
	}
	from := len(dst)
	for i := range all {
		n := &all[i]
		last := &all[canonical(i, n.decoded, func(i, step int) int { return all[i].to[step] })]
		if last.key == "" {
			last.key = keyOf(last.string)
		}
		for _, form := range forms[n.decoded] {
			b = encode(b[:0], n.string, form)
			w.bytes += len(b)
			if w.exceeds(most) {
				return dst[:from], ErrReadings
			}
			same := func(r Reading) bool { return r.Key == last.key && r.Path == string(b) }
			if !slices.ContainsFunc(dst[from:], same) {
				dst = append(dst, Reading{string(b), last.key})
			}
		}
	}
	return dst, nil
}

// forms are the escaped forms of a text that was decoded so often.
var forms = [maxDecodings + 1][]percents{
	{escapesStay, escapesAgain}, {percentsStand, escapesAgain}, {percentsStand},
}

// decodings returns how often a text counts as decoded.
func decodings(decoded int, percent bool) int {
	if !percent {
		return maxDecodings
	}
	return decoded
}

// Of returns the path of a URL, escaped. It fails with ErrLen before it looks at a path that is too
// long to be read.
func Of(u *url.URL) (string, error) {
	if max(len(u.Path), len(u.RawPath)) > MaxLen {
		return "", ErrLen
	}
	return u.EscapedPath(), nil
}

// Canonical returns the spelling under which all spellings of a path are counted together: decoded
// twice, without parameters, dot segments, empty segments, backslashes, capital letters and a final
// slash. Where servers contradict each other, as on /a;%2F..%2Fb, it is one of several Keys.
func Canonical(path string) string {
	if plain(path) {
		return fold(path)
	}
	return keyOf(canonical(rooted(path), 0, func(s string, step int) string {
		return steps[step].of(s)
	}))
}

// AppendCanonical appends the Canonical path to dst. A plain path takes one pass and no memory.
func AppendCanonical(dst, path []byte) []byte {
	if len(path) == 0 || path[0] != '/' {
		return append(dst, Canonical(string(path))...)
	}
	from, slash := len(dst), false
	dst = append(dst, path...)
	key := dst[from:]
	for i, c := range key {
		class := classes[c]
		if class == other || slash && class != ordinary {
			return append(dst[:from], Canonical(string(path))...)
		}
		slash = class == isSlash
		if c-'A' < 26 {
			key[i] = c + 'a' - 'A'
		}
	}
	if slash && len(path) > 1 {
		dst = dst[:len(dst)-1] // a plain path does not end in two
	}
	return dst
}

// plain reports whether servers agree on a path: it has no escapes, parameters, backslashes, empty
// segments or segments that begin with a dot, and begins with a slash. The target of OPTIONS * is
// plain, too.
func plain(path string) bool {
	if path == "" || path[0] != '/' {
		return path == "*"
	}
	slash := false
	for i := range len(path) {
		class := classes[path[i]]
		if class == other || slash && class != ordinary {
			return false
		}
		slash = class == isSlash
	}
	return true
}

// Classes of bytes.
const (
	other    = iota // escaped, or with a meaning for some servers
	ordinary        // stands for itself
	isDot
	isSlash
)

var classes = func() (of [256]uint8) {
	const kept = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~!$&'()*+,=:@"
	for i := range len(kept) {
		of[kept[i]] = ordinary
	}
	of['.'], of['/'] = isDot, isSlash
	return of
}()

func rooted(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return "/" + path
}

// fold returns a path in small letters, without a final slash.
func fold(path string) string {
	return lower(TrimSlashes(path))
}

// TrimSlashes returns a path without final slashes, but for the first one.
func TrimSlashes(path string) string {
	for len(path) > 1 && path[len(path)-1] == '/' {
		path = path[:len(path)-1]
	}
	return path
}

func lower(path string) string {
	if utf8.ValidString(path) {
		return strings.ToLower(path)
	}
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); {
		r, size := utf8.DecodeRuneInString(path[i:])
		if r == utf8.RuneError && size == 1 {
			b = append(b, path[i]) // ToLower would replace all invalid bytes by the same one
		} else {
			b = utf8.AppendRune(b, unicode.ToLower(r))
		}
		i += size
	}
	return string(b)
}
