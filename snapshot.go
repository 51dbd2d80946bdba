package weir

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// ErrSnapshot: what Load was given is no snapshot, or a damaged one, or one of the future.
var ErrSnapshot = errors.New("weir: bad snapshot")

// A snapshot is its version, the instant of the limiter's clock, a record for each bucket that
// counts, the number of records, and a checksum (CRC-32C) of all that. Numbers are varints.
const (
	snapshotVersion = "weir snapshot 1\n"

	slotRecord  = 'b'
	logRecord   = 'l'
	tiersRecord = 't'
	queueRecord = 'q'
	endRecord   = 'e'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Save writes what is counted now to w, for Load in the next process: the counts of every strategy
// but those who wait in a LeakyBucket. It takes 15 to 40 bytes and the ID for each bucket that has
// not expired. Windows are aligned to the Unix epoch, so the counts stay valid as long as the wall
// clock does.
//
// It is safe beside all other calls, and after Close. It is not a snapshot of one instant: what is
// admitted while it runs may be in it or not. No lock is held while it writes. It fails with the
// error of w; then what was written is no snapshot.
func (l *Limiter) Save(w io.Writer) error {
	e := &encoder{w: w}
	e.buf = append(e.buf, snapshotVersion...)
	now := l.clock.read()
	e.int(now)
	for _, t := range l.janitor.all() {
		t.save(e, now)
	}
	e.buf = append(e.buf, endRecord)
	e.int(e.records)
	e.flush(0)
	e.buf = binary.LittleEndian.AppendUint32(e.buf, e.sum)
	e.flush(0)
	return e.err
}

// encoder is a snapshot on its way out.
type encoder struct {
	w       io.Writer
	buf     []byte
	sum     uint32
	records int64
	err     error
}

const saveBuffer = 1 << 16

func (e *encoder) int(v int64)     { e.buf = binary.AppendVarint(e.buf, v) }
func (e *encoder) string(s string) { e.int(int64(len(s))); e.buf = append(e.buf, s...) }

// flush writes the buffer if more than so many bytes are in it. No lock is held.
func (e *encoder) flush(above int) {
	if len(e.buf) <= above {
		return
	}
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	e.sum = crc32.Update(e.sum, castagnoli, e.buf)
	e.buf = e.buf[:0]
}

func (t *table) save(e *encoder, now int64) {
	for i := range t.shards {
		sh := &t.shards[i]
		saveSlot := func(s *slot) { sh.saveSlot(e, s, now) }
		for c := 0; e.err == nil && sh.visit(c, saveSlot); c++ {
			e.flush(saveBuffer)
		}
	}
}

func (sh *shard) saveSlot(e *encoder, s *slot, now int64) {
	k, scale, number := unpackPeriod(s.load(lowWord), s.load(restWord), s.load(tailWord))
	total := count(s.load(stateWord))
	if s.end() <= now || k == fixedKind && total == 0 {
		return
	}
	e.records++
	e.buf = append(e.buf, slotRecord, byte(k))
	e.int(int64(s.load(tailWord) & lenMask))
	e.buf = sh.index.Load().appendID(e.buf, s)
	e.int(scale)
	e.int(total)
	if k == fixedKind {
		e.int(number)
		return
	}
	e.int(int64(s[deniedWord]))
	e.int(int64(s[usedWord]))
}

func (t *states) save(e *encoder, now int64) {
	for i := range t.shards {
		m := t.shards[i].entries.Load()
		if m == nil {
			continue
		}
		m.Range(func(key stateKey, in *entry) bool {
			in.mu.Lock()
			if s := in.state; !in.removed && s.end(key) > now {
				e.records++
				e.buf = append(e.buf, s.record())
				e.string(key.id)
				e.int(key.scale)
				e.string(key.plan)
				s.save(e)
			}
			in.mu.Unlock()
			e.flush(saveBuffer)
			return e.err == nil
		})
	}
}

func (g *hitLog) record() byte      { return logRecord }
func (s *sliceCounts) record() byte { return tiersRecord }
func (q *queue) record() byte       { return queueRecord }

func (g *hitLog) save(e *encoder) {
	e.int(int64(g.hits.Len()))
	for i := range g.hits.Len() {
		e.int(g.hits.At(i).at)
		e.int(g.hits.At(i).cost)
		e.string(g.meta(i))
	}
}

func (s *sliceCounts) save(e *encoder) {
	e.int(int64(s.counts.Len()))
	for i := range s.counts.Len() {
		e.int(s.counts.At(i).slice)
		e.int(s.counts.At(i).cost)
	}
}

func (q *queue) save(e *encoder) { e.int(q.next) }
