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
	mu    sync.Mutex
	to    io.Writer
	w     *bufio.Writer // guarded by mu, as due
	due   bool          // a flush is on its way
	timer *time.Timer
}

// NewLines returns Lines on w.
func NewLines(w io.Writer) *Lines {
	l := &Lines{to: w, w: bufio.NewWriterSize(w, 64<<10)}
	l.timer = time.AfterFunc(time.Hour, func() { _ = l.Flush() })
	l.timer.Stop()
	return l
}

// Write implements io.Writer. An error may stem from earlier lines, which are lost; later lines are
// written again once the writer recovers, as a disk does that was full.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.due {
		l.due = true
		l.timer.Reset(flushEvery)
	}
	n, err := l.w.Write(p)
	l.recover(err)
	return n, err
}

// Flush writes the buffered lines out. Call it at the end.
func (l *Lines) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = false
	l.timer.Stop()
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
