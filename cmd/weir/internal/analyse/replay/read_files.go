package replay

import (
	"errors"
	"fmt"
	"runtime"
)

// read reads all files and adds their requests to the spools. One goroutine reads blocks of lines,
// several parse them, and this one collects them in the order of the files.
func (r *run) read() (err error) {
	workers := min(runtime.GOMAXPROCS(0), maxParts)
	blocks := 2*workers + 1
	free, read, order := make(chan *block, blocks), make(chan *block, blocks),
		make(chan *block, blocks)
	for range blocks {
		free <- &block{buf: make([]byte, maxBlock), parsed: make(chan struct{}, 1)}
	}
	go r.readBlocks(free, order, read)
	for range workers {
		go func() {
			s := newScanner(&r.cfg)
			for b := range read {
				s.scan(b)
				b.parsed <- struct{}{}
			}
		}()
	}
	var lines, requests uint64 // of the file
	var bad Unreadable
	for b := range order {
		<-b.parsed
		if err == nil {
			err = r.take(b)
		}
		bad.merge(&b.bad, b.source.name, lines)
		lines += b.lines
		requests += b.lines - b.directives
		r.result.count(&b.content)
		if r.cfg.Progress != nil {
			r.cfg.Progress(Progress{Bytes: r.bytes + b.source.raw.n.Load(), Lines: r.result.Lines})
		}
		if b.last {
			r.endOfFile(b, requests, &bad)
			lines, requests, bad = 0, 0, Unreadable{}
		}
		free <- b
	}
	return err
}

// readBlocks fills free blocks with the lines of all files, in order. An error ends a file.
func (r *run) readBlocks(free <-chan *block, order, read chan<- *block) {
	defer close(order)
	defer close(read)
	for _, name := range r.cfg.Files {
		s, err := &source{name: UTF8(name)}, r.stopped()
		if err == nil {
			s, err = open(name, r.cfg.Stdin)
		}
		for last := false; !last; {
			b := <-free
			b.source, b.data, b.last = s, nil, false
			b.err = err
			if err == nil {
				b.err = s.fill(b)
			}
			if b.err == nil && !b.last {
				b.err = r.stopped()
			}
			b.last = b.last || b.err != nil
			last = b.last
			order <- b // does not wait, nor does the next: there is room for all blocks
			read <- b
		}
		s.close()
	}
}

// ErrInterrupted is the error of a file that was not read to its end, as Config.Stop was closed.
var ErrInterrupted = errors.New("interrupted")

func (r *run) stopped() error {
	select {
	case <-r.cfg.Stop:
		return ErrInterrupted
	default:
		return nil
	}
}

// take numbers the callers and adds the block's requests to their callers' spools.
func (r *run) take(b *block) error {
	r.inspected.merge(&b.inspected)
	r.first, r.last = min(r.first, b.first), max(r.last, b.final)
	n := uint32(len(r.parts))
	for i := range b.records {
		rec := &b.records[i]
		caller := r.callers.number(b.arena[rec.from:rec.to])
		r.callers.requests[caller]++
		route := uint32(0)
		switch {
		case r.cfg.Overload != nil:
			route = tookBits(rec.took)
		case r.cfg.namesRoutes():
			route = r.routes.number(rec.route)
		}
		r.parts[caller%n].spool.add(rec.at, codeOf(caller/n, rec.marks), route)
	}
	if len(r.callers.names) > maxCallers {
		return fmt.Errorf("more than %d callers", maxCallers)
	}
	return nil
}

// endOfFile records the unreadable lines of a file, an empty file, and a file that is not an access
// log or cannot be read to its end.
func (r *run) endOfFile(b *block, lines uint64, bad *Unreadable) {
	s := b.source
	r.bytes += s.raw.n.Load()
	r.result.Unreadable.merge(bad, s.name, 0)
	if lines > bad.Count {
		r.lines += lines
		r.unread.merge(bad, s.name, 0)
	}
	switch err := b.err; {
	case err != nil:
		r.result.Failed = append(r.result.Failed, Failure{s.name, err, lines > bad.Count})
	case lines == 0:
		r.result.Empty = append(r.result.Empty, s.name)
	case lines == bad.Count:
		r.result.Failed = append(r.result.Failed, Failure{s.name, noLog(s.name, lines, bad), false})
	}
}

// noLog is the error of a file of which no line could be read.
func noLog(name string, lines uint64, bad *Unreadable) error {
	e, none := bad.Examples[0], fmt.Sprintf("none of its %d lines is", lines)
	if lines == 1 {
		none = "its only line is not"
	}
	return &InputError{fmt.Errorf("%s: %s of an access log; line %d: %s: %q", name, none, e.Line,
		e.Reason, e.Text)}
}

// Failure is a file that could not be read.
type Failure struct {
	Name string `json:"file"`
	Err  error  `json:"-"`
	Part bool   `json:"part"` // the part before the error is in the result
}

// Interrupted reports whether the file was not read to its end, as Config.Stop was closed.
func (f Failure) Interrupted() bool { return f.Err == ErrInterrupted }

// cut reports whether a part was read before that.
func (f Failure) cut() bool { return f.Part && f.Interrupted() }
