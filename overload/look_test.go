package overload_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/overload"
)

func TestLookSaysWhatARequestWouldMeet(t *testing.T) {
	g := guardOf(t, overload.Config{Most: 10})
	look := func(caller string, c overload.Class) overload.Look {
		before := g.Stats()
		l, err := g.Look(caller, c)
		require.NoError(t, err)
		assert.Equal(t, before, g.Stats(), "it counts nothing")
		p, err := g.Enter(ctx, caller, c)
		assert.Equal(t, err != nil, l.Refuses(), l)
		if err == nil {
			p.Drop()
		}
		return l
	}
	assert.Equal(t, overload.Look{Most: 9}, look("ann", overload.Normal))
	ann, _ := fill(t, g, "ann", overload.Normal)
	l := look("ann", overload.Normal)
	assert.Equal(t, overload.Look{InFlight: len(ann), Most: 9, Holds: len(ann), Share: 1}, l)
	assert.Equal(t, "5 of 9 for normal; the caller holds 5 of at most 1", l.String())
	assert.Equal(t, "5 of 9 for normal; the caller holds 0 of at most 1",
		look("bob", overload.Normal).String())
	fill(t, g, "", overload.Normal)
	assert.Equal(t, "full: 9 of 9 for normal; the caller holds 5 of at most 1",
		look("ann", overload.Normal).String())
	assert.Equal(t, "full: 9 of 7 for sheddable; the caller holds 0",
		look("", overload.Sheddable).String())
	assert.Equal(t, "9 of 10 for critical; the caller holds 0 of at most 3",
		look("bob", overload.Critical).String())

	_, err := g.Look("ann", 2)
	assert.EqualError(t, err, "overload: the Class 2 is unknown, want -1, 0 or 1")
	_, err = g.Look(strings.Repeat("x", 1025), overload.Normal)
	assert.ErrorIs(t, err, weir.ErrID)
}

func TestParseClassReadsWhatStringWrites(t *testing.T) {
	for c := overload.Sheddable; c <= overload.Critical; c++ {
		got, err := overload.ParseClass(c.String())
		assert.NoError(t, err)
		assert.Equal(t, c, got)
	}
	_, err := overload.ParseClass("high")
	assert.EqualError(t, err, `overload: the class "high" is unknown, want sheddable, normal or critical`)
}
