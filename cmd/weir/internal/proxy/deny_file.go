package proxy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
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
// with # are ignored. Entries of the penalty box are not stored.
type denyFile struct {
	name string     // empty: there is no file
	mu   sync.Mutex // held while the list changes and the file is read or written, so that they agree
	text string     // guarded by mu; of the file when the list was made from it, or it from the list
}

const denyFileHead = `# The deny list of weir proxy, which rewrites this file when the list is changed.
# ADDRESS, PREFIX or "KEY" [END, as in 2026-11-20T12:00:00Z]
`

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
	return f.write(denyFileHead)
}

// load returns the text of the file and its entries. An error names the line.
func (f *denyFile) load() (text string, entries []httplimit.DenyEntry, err error) {
	if f.name == "" {
		return "", nil, nil
	}
	all, err := os.ReadFile(f.name)
	if err != nil {
		return "", nil, err
	}
	text = string(all)
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		e, err := parseDenyLine(line)
		if err != nil {
			return "", nil, fmt.Errorf("%s:%d: %w", f.name, i+1, err)
		}
		entries = append(entries, e)
	}
	return text, entries, nil
}

func parseDenyLine(line string) (e httplimit.DenyEntry, err error) {
	what, until, _ := strings.Cut(line, " ")
	if line[0] == '"' {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return e, fmt.Errorf("%q is not a quoted key", line)
		}
		if e.Key, err = strconv.Unquote(quoted); err != nil || e.Key == "" {
			return e, fmt.Errorf("%s is not a valid key", quoted)
		}
		until = line[len(quoted):]
	} else if e.Prefix, err = cli.Prefix(what); err != nil {
		return e, fmt.Errorf("%w; a key is written in quotes", err)
	}
	if until = strings.TrimSpace(until); until != "" {
		if e.Until, err = time.Parse(time.RFC3339, until); err != nil {
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

// loadDenyList makes the deny list consist of the entries of the file, the ones of the command
// line, and the penalties. If it fails, the list is unchanged.
func (p *Proxy) loadDenyList() error {
	p.denyFile.mu.Lock()
	defer p.denyFile.mu.Unlock()
	text, fromFile, err := p.denyFile.load()
	if err != nil {
		return err
	}
	next := p.newDenyList()
	for _, e := range fromFile {
		if err := next.Add(e); err != nil {
			return fmt.Errorf("%s: %w", p.denyFile.name, err)
		}
	}
	for i, e := range p.cfg.Deny {
		if err := next.Add(e); err != nil {
			return wrongDeny(i, err)
		}
	}
	entries := next.Added()
	for _, old := range p.denied.Added() {
		same := func(e httplimit.DenyEntry) bool { return whom(e) == whom(old) }
		if !slices.ContainsFunc(entries, same) {
			p.denied.Remove(old)
		}
	}
	for _, e := range entries {
		if err := p.denied.Add(e); err != nil {
			return err // never: next has them all
		}
	}
	p.denyFile.text = text
	from := make(map[httplimit.DenyEntry]string)
	for _, e := range fromFile {
		from[whom(e)] = "file"
	}
	for _, e := range p.cfg.Deny {
		from[whom(e)] = "command line"
	}
	p.from.Store(&from)
	return nil
}
