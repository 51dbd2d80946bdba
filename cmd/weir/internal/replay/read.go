package replay

import (
	"fmt"
	"runtime"
	"sync"
)

// read reads all files and gives their requests to the spools. One goroutine cuts files into blocks, some parse them, and
// this one takes them in order.
func (r *run) read() error {
	for _, name := range r.cfg.Files {
		if err := check(name); err != nil {
			return err
		}
	}
	workers := min(runtime.GOMAXPROCS(0), maxParts)
	blocks := 2*workers + 1
	free, work, order := make(chan *block, blocks), make(chan *block, blocks), make(chan *block, blocks)
	for range blocks {
		free <- &block{buf: make([]byte, blockSize), parsed: make(chan struct{}, 1)}
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		defer close(order)
		defer close(work)
		r.cut(free, work, order, stop)
	})
	for range workers {
		all.Go(func() {
			s := newScanner(&r.cfg, r.callers.seed)
			for b := range work {
				s.scan(b)
				b.parsed <- struct{}{}
			}
		})
	}
	err := r.collect(order, free)
	close(stop)
	all.Wait()
	return err
}

// cut sends the blocks of all files to the parsers, and in their order to the collector, until stop is closed. After an
// error, which is in the last block, it sends no more.
func (r *run) cut(free <-chan *block, work, order chan<- *block, stop <-chan struct{}) {
	for _, name := range r.cfg.Files {
		s, err := open(name, r.cfg.Stdin)
		for last := false; !last; {
			var b *block
			select {
			case b = <-free:
			case <-stop:
				s.close()
				return
			}
			if b.source, b.data, b.err = s, nil, err; err == nil {
				b.err = s.fill(b)
			}
			last = b.last
			work <- b // there is room for all blocks
			order <- b
			if b.err != nil {
				s.close()
				return
			}
		}
		s.close()
	}
}

// collect takes blocks in order.
func (r *run) collect(order <-chan *block, free chan<- *block) error {
	res := r.result
	var lines, bad uint64 // of the file
	for b := range order {
		<-b.parsed
		if b.err != nil {
			return b.err
		}
		r.callers.fetch(b.records)
		for i := range b.records {
			rec := &b.records[i]
			if err := r.take(rec, b.arena[rec.from:rec.to]); err != nil {
				return err
			}
		}
		res.Unreadable.merge(&b.bad, b.source.name, lines)
		lines += b.lines
		bad += b.bad.Count
		res.Lines += b.lines
		res.Filtered += b.filtered
		res.Unkeyed += b.unkeyed
		res.Coarse = res.Coarse || b.coarse
		if r.cfg.Progress != nil {
			r.cfg.Progress(Progress{Bytes: r.bytes + b.source.raw.n.Load(), Lines: res.Lines})
		}
		if b.last {
			if err := r.endOfFile(b.source, lines, bad); err != nil {
				return err
			}
			lines, bad = 0, 0
		}
		free <- b
	}
	return nil
}

// take numbers a request's caller and puts the request into the caller's spool.
func (r *run) take(rec *record, key []byte) error {
	caller, err := r.callers.number(key, rec.hash)
	if err != nil {
		return err
	}
	r.callers.all[caller].requests++
	r.result.Requests++
	if rec.uncounted {
		r.result.Uncounted++
	}
	r.first, r.last = min(r.first, rec.at), max(r.last, rec.at)
	n := uint32(len(r.parts))
	return r.parts[caller%n].spool.add(rec.at, codeOf(caller/n, rec.uncounted))
}

// endOfFile says if a file is empty or is not a log.
func (r *run) endOfFile(s *source, lines, bad uint64) error {
	r.bytes += s.raw.n.Load()
	switch lines {
	case 0:
		r.result.Empty = append(r.result.Empty, s.name)
	case bad:
		return &InputError{fmt.Errorf("%s: none of its %d lines is of an access log%s", s.name, lines, r.result.Unreadable.why(s.name))}
	}
	return nil
}
