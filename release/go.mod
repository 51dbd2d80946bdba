module github.com/weirgo/weir/release // not published

go 1.26.0

require golang.org/x/mod v0.42.0
