package replay

import (
	"fmt"
	"io"
	"runtime"
	"sync"
)

// read reads all files and adds their requests to the spools. Several goroutines take turns to read
// a block, then parse it; this one collects the blocks in order.
func (r *run) read() error {
	workers := min(runtime.GOMAXPROCS(0), maxParts)
	blocks := 2*workers + 1
	in := &reader{files: r.cfg.Files, stdin: r.cfg.Stdin, free: make(chan *block, blocks),
		order: make(chan *block, blocks)}
	for range blocks {
		in.free <- &block{buf: make([]byte, maxBlock), parsed: make(chan struct{}, 1)}
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			s := newScanner(&r.cfg)
			for b := in.next(); b != nil; b = in.next() {
				s.scan(b)
				b.parsed <- struct{}{}
			}
		})
	}
	err := r.collect(in)
	in.stop()
	all.Wait()
	return err
}

// reader returns the blocks of all files. The goroutine that read a block also parses it, since the
// block is in its processor's cache.
type reader struct {
	files []string
	stdin io.Reader
	free  chan *block
	order chan *block // blocks in the order they were read; closed at the end

	mu     sync.Mutex // guards the rest
	source *source    // source of the next block; nil if the next file is not open yet
	ended  bool
}

// next returns the next block, or nil at the end.
func (in *reader) next() *block {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended {
		return nil
	}
	if len(in.files) == 0 {
		in.ended = true
		close(in.order)
		return nil
	}
	b, ok := <-in.free
	if !ok {
		return nil
	}
	in.read(b)
	in.order <- b // does not wait: order has room for all blocks
	return b
}

// read fills a block. It opens and closes files as needed. An error ends a file.
func (in *reader) read(b *block) {
	b.data, b.last, b.err = nil, false, nil
	if in.source == nil {
		in.source, b.err = open(in.files[0], in.stdin)
	}
	if b.source = in.source; b.err == nil {
		b.err = in.source.fill(b)
	}
	if b.last = b.last || b.err != nil; b.last {
		in.source.close()
		in.source, in.files = nil, in.files[1:]
	}
}

// stop ends the reading early. No block may be returned to the reader after it.
func (in *reader) stop() {
	close(in.free)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.source.close()
	in.ended = true
}

// collect receives the blocks in order.
func (r *run) collect(in *reader) error {
	res := r.result
	var lines, requests, bad uint64 // of the file
	for b := range in.order {
		<-b.parsed
		if r.take(b); len(r.callers.names) > maxCallers {
			return fmt.Errorf("more than %d callers", maxCallers)
		}
		res.Unreadable.merge(&b.bad, b.source.name, lines)
		lines += b.lines
		requests += b.lines - b.directives
		bad += b.bad.Count
		res.Lines += b.lines - b.directives
		res.Filtered += b.filtered
		res.Unkeyed += b.unkeyed
		res.Coarse = res.Coarse || b.coarse
		if r.cfg.Progress != nil {
			r.cfg.Progress(Progress{Bytes: r.bytes + b.source.raw.n.Load(), Lines: res.Lines})
		}
		if b.last {
			r.endOfFile(b, requests, bad)
			lines, requests, bad = 0, 0, 0
		}
		in.free <- b
	}
	return nil
}

// take numbers the callers and adds the block's requests to their callers' spools.
func (r *run) take(b *block) {
	r.result.Requests += uint64(len(b.records))
	r.result.Uncounted += b.uncounted
	r.inspected, r.hidden = r.inspected+b.inspected, r.hidden+b.hidden
	r.first, r.last = min(r.first, b.first), max(r.last, b.final)
	n := uint32(len(r.parts))
	for i := range b.records {
		rec := &b.records[i]
		caller := r.callers.number(b.arena[rec.from:rec.to])
		r.callers.requests[caller]++
		r.parts[caller%n].spool.add(rec.at, codeOf(caller/n, rec.marks))
	}
}

// endOfFile records an empty file, and a file that is not an access log or cannot be read to its
// end.
func (r *run) endOfFile(b *block, lines, bad uint64) {
	s := b.source
	r.bytes += s.raw.n.Load()
	switch err := b.err; {
	case err != nil:
		r.result.Failed = append(r.result.Failed, Failure{s.name, err, lines > bad})
	case lines == 0:
		r.result.Empty = append(r.result.Empty, s.name)
	case lines == bad:
		err = &InputError{fmt.Errorf("%s: none of its %d lines is of an access log%s", s.name, lines,
			r.result.Unreadable.why(s.name))}
		r.result.Failed = append(r.result.Failed, Failure{s.name, err, false})
	}
}

// Failure is a file that could not be read.
type Failure struct {
	Name string `json:"file"`
	Err  error  `json:"-"`
	Part bool   `json:"part"` // the part before the error is in the result
}
