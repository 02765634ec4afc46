package monitor

import _ "embed"

//go:embed program/amd64.gz
var program string
