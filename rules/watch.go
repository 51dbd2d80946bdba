package rules

import (
	"context"
	"time"
)

// lookEvery is how often Watch reads the files. A change is in force after at most two looks.
const lookEvery = 200 * time.Millisecond

// lookShare bounds the time for reading: 1/lookShare of the time is spent on it. Reading a megabyte
// takes a few milliseconds.
const lookShare = 50

// Watch loads the rules in files and directories, and again whenever they change, until ctx ends.
// It is [Loader.Watch] of the default Loader.
func Watch(ctx context.Context, paths []string, onChange func(set *Set, err error)) {
	(&Loader{}).Watch(ctx, paths, onChange)
}

// Watch calls onChange with the rules in files and directories, and again whenever they change, until
// ctx ends. If the rules have mistakes or cannot be read, it calls onChange with the error of
// [Loader.Load] instead, once; the caller then keeps its rules, since a later call brings correct
// ones. A typical onChange passes the Set to [Engine.Swap]. Calls do not overlap.
//
// Watch reads the files every 200 ms, or less often if that takes more than 1/50 of the time. A new
// state counts once two successive reads find the same: so a file that is being written is not read
// half, and a change of several files is one, as long as the writer does not pause for longer. The
// names of the files do not matter: a symbolic link may be replaced, as Kubernetes does in a mounted
// ConfigMap, or a file renamed to another's name or written in place. Polling works on network file
// systems too, and keeps no file open.
func (l *Loader) Watch(ctx context.Context, paths []string, onChange func(set *Set, err error)) {
	var current, next string // versions
	for {
		began := time.Now()
		from := l.read(osFS{}, paths)
		version := from.version()
		took := time.Since(began)
		switch version {
		case current:
			next = ""
		case next:
			current = version
			onChange(loaded(l.parse(from)))
		default:
			next = version
		}
		pause := time.NewTimer(max(lookEvery, lookShare*took))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}
