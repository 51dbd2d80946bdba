module github.com/weirgo/weir/verify // not published

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/dunglas/httpsfv v1.1.2
	github.com/stretchr/testify v1.12.1
	github.com/weirgo/weir v0.1.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.22.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/weirgo/weir => ..
