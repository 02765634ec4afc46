package cni

import (
	"errors"
	"strings"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/hostports"
	"github.com/nodewright/nodewright/network"
)

// claims returns the host ports of an attachment, if a plugin of the list serves host ports.
func claims(a network.Attachment, l *list) (all []hostports.Claim) {
	if !l.declares(portMappings) {
		return nil
	}
	for _, m := range a.Ports {
		if proto, ok := hostports.Proto(strings.ToLower(m.Protocol)); ok && m.HostPort > 0 {
			all = append(all, hostports.Claims(proto, m.HostIP, m.HostPort)...)
		}
	}
	return all
}

// checkPorts returns an error if a process of the node or another attachment has one of the
// attachment's host ports. It does not reserve the ports: a plugin may listen on them itself.
func (p *Plugin) checkPorts(a network.Attachment, l *list) error {
	err := p.ports.Take(a.ID, claims(a, l)...)
	p.ports.Give(a.ID)
	switch {
	case errors.Is(err, hostports.ErrTaken):
		return &network.Error{Code: network.AlreadyExists, Err: err}
	case errors.Is(err, hostports.ErrLimit):
		return &network.Error{Code: network.ResourceExhausted, Err: err}
	}
	return err
}

// keepPorts binds sockets for the host ports of an attachment. It does so for each port
// separately, since a plugin may listen on some of them itself.
func (p *Plugin) keepPorts(a network.Attachment, l *list) {
	for _, c := range claims(a, l) {
		if err := p.ports.Take(a.ID, c); err != nil {
			p.cfg.Log.Warn("failed to hold host port of pod", zap.String("namespace", a.Namespace), zap.String("pod", a.Name), zap.Error(err))
		}
	}
}
