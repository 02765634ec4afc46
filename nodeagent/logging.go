package nodeagent

import (
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent/logs"
)

// LogConfig is how a configuration wants the log to be written: what logs.New
// takes. Options.LogLevel may be what that returns beside the Logger.
func LogConfig(c *kubeletconfig.Config) logs.Config {
	l := &c.Logging
	out := logs.Config{Format: l.Format, Verbosity: c.Verbosity(), FlushEvery: l.FlushFrequency.Duration.Duration}
	for _, m := range l.VModule {
		out.Modules = append(out.Modules, logs.Module{Pattern: m.FilePattern, Verbosity: int(m.Verbosity)})
	}
	o := l.Options.Text.OutputRoutingOptions
	if l.Format == logs.FormatJSON {
		o = l.Options.JSON.OutputRoutingOptions
	}
	out.Split, out.BufferBytes = o.SplitStream, int(o.InfoBufferSize.Value())
	return out
}
