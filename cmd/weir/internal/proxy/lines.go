package proxy

import (
	"bufio"
	"io"
	"sync"
	"time"
)

// flushEvery bounds how old a line of a log is when it is written.
const flushEvery = 100 * time.Millisecond

// Lines gathers what is written to it and passes it on in large pieces, flushEvery later at most: a system call for each
// line of an access log is a third of what a request costs. It is safe for concurrent use. Make one with NewLines.
type Lines struct {
	mu    sync.Mutex
	w     *bufio.Writer // guarded by mu, as due
	due   bool          // a flush is on its way
	timer *time.Timer
}

// NewLines returns Lines on w.
func NewLines(w io.Writer) *Lines {
	l := &Lines{w: bufio.NewWriterSize(w, 64<<10)}
	l.timer = time.AfterFunc(time.Hour, func() { _ = l.Flush() })
	l.timer.Stop()
	return l
}

// Write implements io.Writer. An error is that of an earlier line, too.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.due {
		l.due = true
		l.timer.Reset(flushEvery)
	}
	return l.w.Write(p)
}

// Flush passes on what was gathered. Call it at the end.
func (l *Lines) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = false
	l.timer.Stop()
	return l.w.Flush()
}
