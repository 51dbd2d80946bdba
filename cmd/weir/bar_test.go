package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBarShowsHowFarItIs(t *testing.T) {
	var out bytes.Buffer
	b := &bar{w: &out, total: 200, start: time.Now().Add(-2 * time.Second)}
	b.show(100, 3_000_000)
	assert.Regexp(t, `^\r 50 % \[={15} {15}\] 3\.0 M lines, 1\.[45] M lines/s $`, out.String())
	b.show(150, 4_000_000)
	assert.Regexp(t, `^\r 50 %[^\r]*$`, out.String(), "twice within a tenth of a second is shown once")
	b.clear()
	assert.Contains(t, out.String(), "\r\x1b[K")
}

func TestBarIsSilentUnlessItsPlaceIsATerminal(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out, []string{"main.go"}, false)
	b.show(1, 1)
	b.clear()
	assert.Empty(t, out.String())
}
