module github.com/weirgo/weir/adapters/echolimit

go 1.25.0

require (
	github.com/labstack/echo/v5 v5.3.1
	github.com/stretchr/testify v1.12.1
	github.com/weirgo/weir v0.1.0
)

require (
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)
