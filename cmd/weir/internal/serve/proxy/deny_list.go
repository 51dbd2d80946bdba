package proxy

import (
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/httplimit"
)

// denyList is the deny list of a process, and its file.
type denyList struct {
	*httplimit.DenyList
	max  int // entries
	file denyFile
	// who has set the entries that are not set by hand, by their key or prefix
	from atomic.Pointer[map[httplimit.DenyEntry]string]
}

// newDenyList returns an empty list for so many entries, with a file of this name. It makes the
// file if there is none.
func newDenyList(max int, name string) (*denyList, error) {
	l := &denyList{max: max, file: denyFile{name: name}}
	l.DenyList = l.empty()
	return l, l.file.create()
}

// empty returns another list, which is empty.
func (l *denyList) empty() *httplimit.DenyList {
	return httplimit.NewDenyList(httplimit.DenyListConfig{MaxEntries: l.max})
}

// follow has the list follow the settings, of which these entries were and are. If it fails, the
// list is unchanged.
func (l *denyList) follow(was, entries []httplimit.DenyEntry, log *slog.Logger) error {
	switch {
	case l.from.Load() != nil && slices.Equal(was, entries):
		return nil
	case l.from.Load() == nil || l.file.name != "":
		return l.load(entries, log)
	}
	l.file.mu.Lock()
	defer l.file.mu.Unlock()
	all := slices.DeleteFunc(l.Added(), func(e httplimit.DenyEntry) bool {
		return has(was, e) || has(entries, e)
	})
	by := len(all) // these were set by hand
	all = append(all, entries...)
	next := l.empty()
	for i, e := range all {
		if err := next.Add(e); err != nil {
			return wrongDeny(max(0, i-by), err)
		}
	}
	l.replace(all)
	l.cameFrom(nil, entries)
	return nil
}

// replace makes these the entries of the list beside penalties. They fit on it.
// file.mu is held.
func (l *denyList) replace(entries []httplimit.DenyEntry) {
	for _, old := range l.Added() {
		if !has(entries, old) {
			l.Remove(old)
		}
	}
	for _, e := range entries {
		_ = l.Add(e) // it fits
	}
}

// cameFrom notes who has set the entries of the file and of the settings.
func (l *denyList) cameFrom(fromFile, settings []httplimit.DenyEntry) {
	from := make(map[httplimit.DenyEntry]string)
	for _, e := range fromFile {
		from[whom(e)] = "file"
	}
	for _, e := range settings {
		from[whom(e)] = "command line"
	}
	l.from.Store(&from)
}

// load makes the list consist of the entries of the file, these of the command line, and the
// penalties. If it fails, the list is unchanged.
func (l *denyList) load(entries []httplimit.DenyEntry, log *slog.Logger) error {
	l.file.mu.Lock()
	defer l.file.mu.Unlock()
	text, fromFile, err := l.file.load()
	if err == nil && l.file.name != "" && l.from.Load() != nil { // it was read before
		err = l.file.checkCut(text, fromFile, log)
	}
	if err != nil {
		return err
	}
	next := l.empty()
	for _, e := range fromFile {
		if err := next.Add(e); err != nil {
			return fmt.Errorf("%s: %w", l.file.name, err)
		}
	}
	for i, e := range entries {
		if err := next.Add(e); err != nil {
			return wrongDeny(i, err)
		}
	}
	l.replace(next.Added())
	l.file.text = text
	l.cameFrom(fromFile, entries)
	return nil
}

// shown returns an entry as the page shows it.
func (l *denyList) shown(e httplimit.DenyEntry, by By) cli.Listed {
	s := cli.Listed{Name: by.describe(e), Kind: "prefix", By: "hand"}
	switch {
	case e.Key != "":
		s.ID, s.Kind = live.ID(e.Key), "key"
	case e.Prefix.IsSingleIP():
		s.Prefix, s.Kind = e.Prefix.String(), "address"
	default:
		s.Prefix = e.Prefix.String()
	}
	if from := (*l.from.Load())[whom(e)]; e.Penalty {
		s.By = "penalty box"
	} else if from != "" {
		s.By = from
	}
	if !e.Until.IsZero() {
		s.Until = e.Until.UnixMilli()
	}
	return s
}

// stopped returns how many of the recent callers each entry stops.
func (l *denyList) stopped(r *recent) map[httplimit.DenyEntry]int {
	stopped := make(map[httplimit.DenyEntry]int)
	if l.Len() == 0 {
		return stopped
	}
	callers, each := r.callers(time.Now())
	for key, addr := range callers {
		if e, ok := l.Lookup(key, addr); ok {
			stopped[whom(e)] += each
		}
	}
	return stopped
}

// whom returns e without what is not whom it is for.
func whom(e httplimit.DenyEntry) httplimit.DenyEntry {
	return httplimit.DenyEntry{Key: e.Key, Prefix: e.Prefix}
}

// has reports whether one of all denies whom e denies.
func has(all []httplimit.DenyEntry, e httplimit.DenyEntry) bool {
	return slices.ContainsFunc(all, func(o httplimit.DenyEntry) bool { return whom(o) == whom(e) })
}
