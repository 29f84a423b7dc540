package telemetry

import (
	"regexp"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Sentries makes metrics of the kernels of gVisor that are kept started for the next
// sandbox; stock is asked at every scrape.
func (m *Metrics) Sentries(stock func() (ready, wanted int)) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cubby_sentries_ready", Help: "Kernels of gVisor that are started and have no sandbox yet.",
		}, func() float64 { ready, _ := stock(); return float64(ready) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cubby_sentries_wanted", Help: "Kernels of gVisor that shall be kept started.",
		}, func() float64 { _, wanted := stock(); return float64(wanted) }),
	)
}

var sentriesLine = regexp.MustCompile(`(?m)^cubby_sentries_(ready|wanted) ([0-9]+)$`)

// ReadSentries reads what [Metrics.Sentries] makes out of metrics in the text format.
func ReadSentries(text string) (ready, wanted int) {
	for _, f := range sentriesLine.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(f[2])
		switch {
		case err != nil:
		case f[1] == "ready":
			ready = n
		default:
			wanted = n
		}
	}
	return ready, wanted
}
