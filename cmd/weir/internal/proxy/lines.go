package proxy

import (
	"bufio"
	"io"
	"sync"
	"time"
)

// flushEvery bounds how old a line of a log is when it is written.
const flushEvery = 100 * time.Millisecond

// Lines gathers what is written to it and passes it on in large pieces, flushEvery later at most: a
// system call for each line of an access log is a third of what a request costs. It is safe for
// concurrent use. Make one with NewLines.
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

// Write implements io.Writer. An error may be that of earlier lines; they are lost, and those to
// come are not: the disk that is full today is not tomorrow.
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

// Flush passes on what was gathered. Call it at the end.
func (l *Lines) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = false
	l.timer.Stop()
	err := l.w.Flush()
	l.recover(err)
	return err
}

// recover has the writer forget an error, which would otherwise be its answer for ever. mu is held.
func (l *Lines) recover(err error) {
	if err != nil {
		l.w.Reset(l.to)
	}
}
