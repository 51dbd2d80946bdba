package proxy

import (
	"bufio"
	"io"
	"sync"
	"time"
)

// flushEvery bounds the time from a Write until the line is written out.
const flushEvery = 100 * time.Millisecond

// Lines buffers lines and writes them out in large pieces, at most flushEvery later: a system call
// for each line of an access log is a third of the cost of a request. It is safe for concurrent
// use. Make one with NewLines.
type Lines struct {
	to io.Writer

	mu  sync.Mutex
	w   *bufio.Writer // guarded by mu
	due *time.Timer   // guarded by mu; of the flush that is on its way; nil: none
}

// NewLines returns Lines on w.
func NewLines(w io.Writer) *Lines {
	return &Lines{to: w, w: bufio.NewWriterSize(w, 64<<10)}
}

// Write implements io.Writer. An error may stem from earlier lines, which are lost; later lines are
// written again once the writer recovers, as a disk does that was full.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due == nil {
		l.due = time.AfterFunc(flushEvery, func() { _ = l.Flush() })
	}
	n, err := l.w.Write(p)
	l.recover(err)
	return n, err
}

// Flush writes the buffered lines out. Call it at the end.
func (l *Lines) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due != nil {
		l.due.Stop()
		l.due = nil
	}
	err := l.w.Flush()
	l.recover(err)
	return err
}

// recover resets the writer after an error, which it would otherwise return forever. mu is held.
func (l *Lines) recover(err error) {
	if err != nil {
		l.w.Reset(l.to)
	}
}
