package rules

import (
	"context"
	"time"
)

// lookEvery is how often Watch reads the files. A change is in force after at most two looks.
const lookEvery = 200 * time.Millisecond

// lookWork is how much Watch reads in lookEvery, a few milliseconds of work. It reads more less
// often.
const lookWork = 1_000_000

// pause returns the time until Watch reads the files again. It follows from their size, not from
// how long reading them took: on a busy machine that is mostly the time of other programs, and
// changes would wait.
func (s *source) pause() time.Duration {
	return max(lookEvery, time.Duration(s.work)*(lookEvery/lookWork))
}

// Watch loads the rules in files and directories, and again whenever they change, until ctx ends.
// It is [Loader.Watch] of the default Loader.
func Watch(ctx context.Context, paths []string, onChange func(set *Set, err error)) {
	(&Loader{}).Watch(ctx, paths, onChange)
}

// Watch calls onChange with the rules in files and directories, and again whenever they change,
// until ctx ends. If the rules have mistakes or cannot be read, it calls onChange with the error of
// [Loader.Load] instead, once; the caller then keeps its rules, since a later call brings correct
// ones. A typical onChange passes the Set to [Engine.Swap], unless [Set.Lost] has
// an error: no files are rules without a limit. Calls do not overlap.
//
// Watch reads the files every 200 ms, or less often if they are larger than a megabyte, with 8 KiB
// more for each. A new state counts once two successive reads find the same: so a file that is
// being written is not read half, and a change of several files is one, as long as the writer does
// not pause for longer. The names of the files do not matter: a symbolic link may be replaced, as
// Kubernetes does in a mounted ConfigMap, or a file renamed to another's name or written in place.
// Polling works on network file systems too, and keeps no file open.
func (l *Loader) Watch(ctx context.Context, paths []string, onChange func(set *Set, err error)) {
	var current, next string // versions
	for {
		from := l.read(osFS{}, paths)
		switch version := from.version(); version {
		case current:
			next = ""
		case next:
			current = version
			onChange(loaded(l.parse(from)))
		default:
			next = version
		}
		pause := time.NewTimer(from.pause())
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}
