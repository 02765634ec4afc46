package kubeletconfig

import (
	"fmt"
	"math"
	"path"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// maxLogBuffer is the maximum of infoBufferSize in bytes.
const maxLogBuffer = 64 << 20

func validateLogging(c *v1beta1.KubeletConfiguration, bad reporter) {
	l := &c.Logging
	if l.Format != "" {
		oneOf(bad, "logging.format", l.Format, "text", "json")
	}
	if l.Verbosity > math.MaxInt32 {
		bad("logging.verbosity", l.Verbosity, "0 to 2147483647")
	}
	if d := l.FlushFrequency.Duration.Duration; d < 0 {
		bad("logging.flushFrequency", d.String(), "a duration above 0")
	}
	if len(l.VModule) > 0 && l.Format == "json" {
		bad("logging.vmodule", len(l.VModule), "none, or logging.format: text")
	}
	for i, m := range l.VModule {
		if _, err := path.Match(m.FilePattern, ""); err != nil || m.FilePattern == "" || strings.ContainsAny(m.FilePattern, ",=") {
			bad(fmt.Sprintf("logging.vmodule[%d].filePattern", i), m.FilePattern, "the name of a source file without .go, or a glob pattern for such names, without commas and equal signs")
		}
		if m.Verbosity > math.MaxInt32 {
			bad(fmt.Sprintf("logging.vmodule[%d].verbosity", i), m.Verbosity, "0 to 2147483647")
		}
	}
	for i, n := range []int64{l.Options.JSON.InfoBufferSize.Value(), l.Options.Text.InfoBufferSize.Value()} {
		if n < 0 || n > maxLogBuffer {
			bad("logging.options."+[]string{"json", "text"}[i]+".infoBufferSize", n, "0 to 64Mi")
		}
	}
}
