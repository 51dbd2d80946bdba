package proxy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/core/atomicfile"
)

// denyFile stores the deny list over a restart. Each line is an address, a prefix or a quoted key,
// followed by a blank and the end of the entry, if it has one. Empty lines and lines that begin
// with # are ignored, but that the last one may be cli.EndLine. Entries of the penalty box are not
// stored.
type denyFile struct {
	name string     // empty: there is no file
	mu   sync.Mutex // held while the list changes and the file is read or written, so that they agree
	text string     // guarded by mu; of the file when the list was made from it, or it from the list
}

const denyFileHead = `# The deny list of weir proxy, which rewrites this file when the list is changed.
# ADDRESS, PREFIX or "KEY" [END, as in 2026-11-20T12:00:00Z]
`

const denyFileEnd = cli.EndLine + "\n"

// create writes a file without entries if there is none: a directory that is missing or read-only
// is noticed at the start, and a file that is missing later is a mistake and no empty list.
func (f *denyFile) create() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.name == "" {
		return nil
	}
	if _, err := os.Stat(f.name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.write(denyFileHead + denyFileEnd)
}

// load returns the text of the file and its entries. An error names the line. mu is held.
func (f *denyFile) load() (text string, entries []httplimit.DenyEntry, err error) {
	if f.name == "" {
		return "", nil, nil
	}
	all, err := os.ReadFile(f.name)
	if err != nil {
		return "", nil, err
	}
	entries, err = f.parse(string(all))
	return string(all), entries, err
}

func (f *denyFile) parse(text string) (entries []httplimit.DenyEntry, err error) {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		e, err := parseDenyLine(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", f.name, i+1, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// checkCut returns an error if the text of the file, which has these entries, may have been cut
// since it was read, and logs how many it had. Entries that have ended are in no count. mu is held.
func (f *denyFile) checkCut(text string, entries []httplimit.DenyEntry, log *slog.Logger) error {
	now := time.Now()
	live := func(all []httplimit.DenyEntry) (n int) {
		for _, e := range all {
			if e.Until.IsZero() || e.Until.After(now) {
				n++
			}
		}
		return n
	}
	before, _ := f.parse(f.text) // it could be parsed
	had, has := live(before), live(entries)
	err := cli.CheckCut(f.name, "entries", had, has, f.text, text)
	switch counts := []any{"entries", has, "entries_before", had}; {
	case err != nil:
		log.Warn("the deny file is refused; the old list stays in force", append(counts, "error", err)...)
	case 2*has < had:
		log.Warn("deny file read", counts...)
	default:
		log.Info("deny file read", counts...)
	}
	return err
}

func parseDenyLine(line string) (e httplimit.DenyEntry, err error) {
	what, until, _ := strings.Cut(line, " ")
	if line[0] == '"' {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return e, fmt.Errorf("%q is not a quoted key", line)
		}
		e.Key, err = strconv.Unquote(quoted)
		if err != nil || e.Key == "" {
			return e, fmt.Errorf("%s is not a valid key", quoted)
		}
		until = line[len(quoted):]
	} else {
		e.Prefix, err = cli.Prefix(what)
		if err != nil {
			return e, fmt.Errorf("%w; a key is written in quotes", err)
		}
	}
	until = strings.TrimSpace(until)
	if until != "" {
		e.Until, err = time.Parse(time.RFC3339, until)
		if err != nil {
			return e, fmt.Errorf("%q is not a time such as 2026-11-20T12:00:00Z", until)
		}
	}
	return e, nil
}

// save writes the list to the file, unless the file has lines that are not in the list: it has
// changed since, or its last reload failed. mu is held.
func (f *denyFile) save(list *httplimit.DenyList) error {
	if f.name == "" {
		return nil
	}
	text, err := os.ReadFile(f.name)
	if err == nil && string(text) != f.text {
		return fmt.Errorf("%s has changed since it was read; send SIGHUP first", f.name)
	}
	var b strings.Builder
	b.WriteString(denyFileHead)
	for _, e := range list.Added() {
		if e.Key != "" {
			b.WriteString(strconv.QuoteToASCII(e.Key))
		} else {
			b.WriteString(e.Prefix.String())
		}
		if !e.Until.IsZero() {
			b.WriteString(" " + e.Until.UTC().Format(time.RFC3339))
		}
		b.WriteByte('\n')
	}
	b.WriteString(denyFileEnd)
	return f.write(b.String())
}

// write replaces the file atomically: a crash leaves the old file or the new one. mu is held.
func (f *denyFile) write(text string) error {
	err := atomicfile.Replace(f.name, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err == nil {
		f.text = text
	}
	return err
}
