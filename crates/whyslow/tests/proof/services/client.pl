# One client of a port or of a unix socket: at most so many slow requests, with one way to wait; it has no name until it has waited for 1.5
# s. It reports how long it waited, and how long the service acted for it.
use strict; use warnings; use IO::Select; use IO::Socket::INET; use IO::Socket::UNIX; use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
my ($port, $count, $way, $name) = @ARGV;
$0 = $name if $name;
my $c = ($port =~ m{/} ? IO::Socket::UNIX->new(Peer => $port) : IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port")) // die;
my ($set, $waited, $acted) = (IO::Select->new($c), 0, 0);
for (1 .. $count) {
    my $from = clock_gettime(CLOCK_MONOTONIC);
    syswrite $c, "slow\n";
    if ($way eq 'select') { $set->can_read } elsif ($way =~ /looks=(.*)/) { 1 until $set->can_read($1) }
    sysread $c, my $word, 99;
    $waited += clock_gettime(CLOCK_MONOTONIC) - $from;
    $acted += $word;
    last if !$name && $waited > 1.5;
}
print "waited $waited acted $acted\n";
