package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
)

func TestBarShowsProgress(t *testing.T) {
	var out bytes.Buffer
	b := &bar{w: &out, total: 200, start: time.Now().Add(-2 * time.Second)}
	b.show(replay.Progress{Bytes: 100, Lines: 3_000_000})
	assert.Regexp(t, `^\r 35 % \[={10} {20}\] 3\.0 M lines, 1\.[45] M lines/s, [34]s left \x1b\[K$`,
		out.String())
	b.show(replay.Progress{Bytes: 150, Lines: 4_000_000})
	assert.Regexp(t, `^\r 35 %[^\r]*$`, out.String(),
		"two updates within a tenth of a second draw the bar once")
	b.shown = time.Time{}
	b.show(replay.Progress{Bytes: 200, Lines: 6_000_000, Decided: 3_000_000, Requests: 6_000_000})
	assert.Contains(t, out.String(), "\r 85 % [=")
	b.clear()
	assert.Contains(t, out.String(), "\r\x1b[K")
}

func TestBarCountsFewLines(t *testing.T) {
	var out bytes.Buffer
	b := &bar{w: &out, total: 200, start: time.Now().Add(-2 * time.Second)}
	b.show(replay.Progress{Bytes: 100, Lines: 1500})
	assert.Regexp(t, ` 1500 lines, 7[45]\d lines/s, [34]s left `, out.String())
}

func TestBarIsSilentUnlessOnATerminal(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out, []string{"main.go"}, false)
	b.show(replay.Progress{Bytes: 1, Lines: 1})
	b.clear()
	assert.Empty(t, out.String())
}
