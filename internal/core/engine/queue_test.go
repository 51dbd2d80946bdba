package engine

import (
	"container/list"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A waiter leaves the queue at a cost that does not depend on its length: it looks at its neighbors
// only.
func TestLeavingALongQueueIsCheap(t *testing.T) {
	var q Queue
	var line []*list.Element
	for range 1001 {
		line = append(line, q.line.PushBack(&waiter{cost: 1}))
		q.Waiting++
	}
	cutLinks(line, 500)
	q.remove(line[500])
	assert.Equal(t, 1000, q.line.Len())
	assert.EqualValues(t, 1000, q.Waiting)
}

func TestLeavingALongQueueControlIsRejected(t *testing.T) {
	var l list.List
	var line []*list.Element
	for i := range 1001 {
		line = append(line, l.PushBack(i))
	}
	search := func() bool {
		for e := l.Front(); e != nil; e = e.Next() {
			if e == line[500] {
				return true
			}
		}
		return false
	}
	assert.True(t, search())
	cutLinks(line, 500)
	assert.False(t, search(), "a walk through the queue finds no waiter")
}

// cutLinks clears every element of a list but the i-th, so that nothing else can walk to it. It can
// still be removed.
func cutLinks(elements []*list.Element, i int) {
	for j, e := range elements {
		if j != i {
			*e = list.Element{Value: e.Value}
		}
	}
}
