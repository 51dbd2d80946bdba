module github.com/weirgo/weir/examples // not published

go 1.25.0

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/go-chi/chi/v5 v5.5.0
	github.com/stretchr/testify v1.12.1
	github.com/weirgo/weir v0.1.0
)

require (
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.22.0 // indirect
)

replace github.com/weirgo/weir => ..
