package weir

import "sync/atomic"

// windows remembers the running windows of the scales in use, so that a decision in one costs neither a division nor
// the making of a time.Time. The zero value is ready.
type windows struct {
	slots [64]atomic.Pointer[window] // by scale, in one of `probes` neighbours; each window is read-only
}

const probes = 4

func (ws *windows) slot(scale int64, way uint64) *atomic.Pointer[window] {
	return &ws.slots[uint64(scale)*0x9e3779b97f4a7c15>>58^way]
}

// first returns the window of scale that holds now if it is where it is looked for first, or nil.
func (ws *windows) first(now, scale int64) *window {
	if w := ws.slot(scale, 0).Load(); w != nil && w.scale == scale && w.start <= now && now < w.end {
		return w
	}
	return nil
}

// at returns the window of scale that holds now, or nil if it is not remembered.
func (ws *windows) at(now, scale int64) *window {
	for way := range uint64(probes) {
		if w := ws.slot(scale, way).Load(); w != nil && w.scale == scale && w.holds(now) {
			return w
		}
	}
	return nil
}

// last returns the window of scale that is remembered, which may be over, or nil.
func (ws *windows) last(scale int64) *window {
	for way := range uint64(probes) {
		if w := ws.slot(scale, way).Load(); w != nil && w.scale == scale {
			return w
		}
	}
	return nil
}

// remember keeps w, which holds now, in the place of an earlier window of its scale or of one that is over. Where all
// probes find others it is forgotten: dozens of scales in use at once cost an allocation each decision, and no churn.
func (ws *windows) remember(w *window, now int64) {
	for way := range uint64(probes) {
		slot := ws.slot(w.scale, way)
		if old := slot.Load(); old == nil || old.scale == w.scale || !old.holds(now) {
			slot.Store(w)
			return
		}
	}
}
