module github.com/weirgo/weir/mutants // not published

go 1.25.0
