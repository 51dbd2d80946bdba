package weir

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWindowHoldsOnlyItsOwnInstants(t *testing.T) {
	w := windowAt(0, 10)
	assert.False(t, w.holds(maxInstant), "a window that ended long ago holds the last instant that can be counted")
	assert.True(t, windowAt(maxInstant, 10).holds(maxInstant), "the last window holds the last instant")
}
