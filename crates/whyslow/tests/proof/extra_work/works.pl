# Makes one call again and again, and logs how long all of them took: FILE WHAT SIZE PLACE NAME
# The log has lines "calls seconds"; the first line is for calls without the extra work, the others are sums since then. Size 10 is a little
# extra work.
use strict;
use Time::HiRes qw(time sleep);
use Socket;
use POSIX ();
my ($log, $what, $size, $place, $name) = @ARGV;
$0 = $name;
open(my $out, ">>", $log) or die;
select((select($out), $| = 1)[0]);
my ($udp, $n, $to) = (undef, 0);
if ($what eq "rules") {
	socket($udp, PF_INET, SOCK_DGRAM, 0) or die;
	bind($udp, sockaddr_in(7777, inet_aton("127.0.0.1"))) or die "$!";
	$to = sockaddr_in(7777, inet_aton("127.0.0.1"));
}
my @held;
# None of these files exists; in a twin a few do not exist.
my (@missing, @there) = ("$place/missing-0");
my %sets_up = (
	vain => sub {
		@missing = map { "$place/missing-$_" } 1 .. ($size > 10 ? $size : 100);
		return if $size > 10;
		for (1 .. 4000) { push @there, "$place/there-$_"; open(my $file, ">", $there[-1]) or die }
	},
	# The last rule's number is not an address of any packet.
	rules => sub {
		open(my $rules, "|-", "iptables-legacy-restore") or die;
		print $rules "*filter\n", (map { "-A INPUT -s 10.@{[$_ >> 16]}.@{[$_ >> 8 & 255]}.@{[$_ & 255]} -j DROP\n" } 1 .. $size), "COMMIT\n";
		close($rules) or die "iptables-legacy-restore: $?";
	},
	# Loads an argument first, so that the kernel cannot know the answer from the call's number alone; then compares it with numbers.
	seccomp => sub {
		my $filter = pack("SCCL", 0x20, 0, 0, 16);
		$filter .= pack("SCCL", 0x15, 0, 0, 0x10000000 + $_) for 1 .. $size;
		$filter .= pack("SCCL", 0x06, 0, 0, 0x7fff0000);
		my $program = pack("Sx6P", $size + 2, $filter);
		syscall(157, 38, 1, 0, 0, 0) == 0 or die "no new privileges: $!";
		syscall(157, 22, 2, $program) == 0 or die "seccomp: $!";
	},
	# 2 Mbit/s; the twin's shaper is as fast as the loopback.
	shaper => sub {
		my $rate = $size > 10 ? "2mbit" : "8gbit";
		system("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", $rate, "burst", "64kb", "latency", "1s") == 0 or die;
	},
	# As many connections as the table holds.
	tracked => sub { for (1 .. $size * 2) { push @held, connected(0.3) || last } },
	dropped => sub { system("iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "7780", "-j", "DROP") == 0 or die if $size > 10 },
	away => sub { if ($size > 10) { open(my $go, ">", "$place/go") or die } },
	layers => sub {
		mkdir "$place/$_" for qw(lower upper work merged);
		open(my $file, ">", "$place/lower/file") or die;
		print $file "x" x 1048576 for 1 .. $size;
	},
);
# A service that answers a request of two lines with two lines, each in a write of its own.
my ($service, $child);
if ($what eq "writes") {
	socketpair_of_tcp($service, $child);
	my $pid = fork();
	if (!$pid) {
		close($service);
		$0 = "$name-service";
		my ($got, $all) = ("", "");
		while (sysread($child, $got, 4096)) {
			$all .= $got;
			while ($all =~ s/^[^\n]*\n[^\n]*\n//) { syswrite($child, "answer\n"); syswrite($child, "end\n") }
		}
		exit;
	}
}
# A service that answers a line with as many KiB as the client requests.
if ($what eq "shaper") {
	socketpair_of_tcp($service, $child);
	my $pid = fork();
	if (!$pid) {
		close($service);
		$0 = "$name-service";
		while (sysread($child, my $got, 4096)) { syswrite($child, "x" x (1024 * $got)) }
		exit;
	}
	close($child);
}
# A service that, on order, ends after a while and is started again after $size ms.
my $port;
if ($what eq "away") {
	socket(my $listener, PF_INET, SOCK_STREAM, 0) or die;
	bind($listener, sockaddr_in(0, inet_aton("127.0.0.1"))) or die "$!";
	($port) = sockaddr_in(getsockname($listener));
	close($listener);
	my $keeper = fork();
	ends_with_its_parent() if !$keeper;
	while (!$keeper) {
		my $server = fork();
		serve() if !$server;
		waitpid($server, 0);
		sleep($size / 1000);
	}
}
# prctl(PR_SET_PDEATHSIG, SIGKILL)
sub ends_with_its_parent { syscall(157, 1, 9, 0, 0, 0) == 0 or die "$!" }
sub serve {
	ends_with_its_parent();
	$0 = "$name-service";
	socket(my $listener, PF_INET, SOCK_STREAM, 0) or die;
	setsockopt($listener, SOL_SOCKET, SO_REUSEADDR, 1) or die;
	bind($listener, sockaddr_in($port, inet_aton("127.0.0.1"))) or die "$!";
	listen($listener, 16) or die;
	my $until;
	while (!defined $until || time < $until) {
		$until = time + 0.15 if !defined $until && -e "$place/go";
		my $ready = "";
		vec($ready, fileno($listener), 1) = 1;
		next if !select($ready, undef, undef, 0.01);
		accept(my $client, $listener) or die;
		syswrite($client, "answer\n");
	}
	POSIX::_exit(3);
}
# Not so often that it reuses the addresses of its own closed connections: then the kernel sends the SYN again.
sub ask_until_answered {
	sleep(0.002);
	while (1) {
		socket(my $to_it, PF_INET, SOCK_STREAM, 0) or die;
		return if connect($to_it, sockaddr_in($port, inet_aton("127.0.0.1"))) && sysread($to_it, my $got, 9);
		sleep(0.04);
	}
}
sub ask_for { my $left = 1024 * $_[0]; syswrite($service, "$_[0]\n"); while ($left > 0) { $left -= sysread($service, my $got, 1 << 20) || die } }
sub socketpair_of_tcp {
	socket(my $listener, PF_INET, SOCK_STREAM, 0) or die;
	bind($listener, sockaddr_in(0, inet_aton("127.0.0.1"))) or die "$!";
	listen($listener, 1) or die;
	socket($_[0], PF_INET, SOCK_STREAM, 0) or die;
	connect($_[0], getsockname($listener)) or die "$!";
	accept($_[1], $listener) or die "$!";
	at_once(1, @_);
}
# TCP_NODELAY
sub at_once { my $is = shift; setsockopt($_, 6, 1, $is) or die for @_ }
sub ask {
	syswrite($service, "question\n");
	syswrite($service, "end\n");
	my ($got, $all) = ("", "");
	while ($all !~ /\n.*\n/s) { sysread($service, $got, 4096) or die; $all .= $got }
}
# A service that keeps each connection until its client closes it, at a known port: the dropped packets are SYNs to it.
my $at = sockaddr_in(7780, inet_aton("127.0.0.1"));
if ($what eq "tracked" || $what eq "dropped") {
	socket(my $listener, PF_INET, SOCK_STREAM, 0) or die;
	bind($listener, $at) or die "$!";
	listen($listener, 4000) or die;
	if (!fork()) {
		ends_with_its_parent();
		$0 = "$name-service";
		my @all;
		while (accept(my $one, $listener)) { syswrite($one, "answer\n"); push @all, $one; shift @all if @all > 3000 }
		exit;
	}
}
# ... and its client, which gives up after a while, and reports meanwhile how long it has waited.
my $so_far = sub {};
sub connected {
	my ($most) = @_;
	# The service must keep up: otherwise its own queue would be full.
	sleep(0.001);
	my ($from, $ready) = (time, "");
	socket(my $to_it, PF_INET, SOCK_STREAM, 0) or die;
	fcntl($to_it, 4, 04000) or die "$!"; # F_SETFL, O_NONBLOCK
	vec($ready, fileno($to_it), 1) = 1;
	connect($to_it, $at);
	until (select(undef, my $is = $ready, undef, 0.1)) {
		&$so_far(time - $from);
		return if time - $from > $most;
	}
	$to_it
}
my %calls = (
	tracked => sub { connected(2.5) },
	dropped => sub { connected(2.5) },
	writes => \&ask,
	shaper => sub { ask_for($size) },
	away => \&ask_until_answered,
	rules => sub { send($udp, "x", 0, $to) or die "$!"; recv($udp, my $got, 9, 0) },
	seccomp => sub { syscall(110) },
	vain => sub { chmod(0600, @missing, @there) },
	layers => sub { chown($n++ % 100, 0, "$place/merged/file") or die "$!" },
);
my ($set_up, $call) = ($sets_up{$what}, $calls{$what});
my $is_fault = $size > 10;
sub lay {
	system("mount", "-t", "overlay", "overlay", "-o", "lowerdir=$place/lower,upperdir=$place/upper,workdir=$place/work,metacopy=off", "$place/merged") == 0 or die;
}
sub laid {
	my $run = shift;
	lay();
	my $took = &$run();
	system("umount", "$place/merged") == 0 or die;
	unlink "$place/upper/file";
	$took
}
# The calls of one round, and how long they took.
my $round = $what eq "rules" || $what eq "seccomp" ? 200 : 1;
my $timed = sub { my $from = time; &$call() for 1 .. $round; time - $from };
my $rounds = 0;
sub write_down { my ($calls, $seconds) = @_; syswrite($out, sprintf("%d %.9f\n", $calls, $seconds)) }
if ($what eq "layers") {
	mkdir "$place/merged";
	open(my $file, ">", "$place/merged/file") or die;
	write_down(100, do { my $took = 0; $took += &$timed() for 1 .. 100; $took });
	unlink "$place/merged/file";
	&$set_up();
	my $once = $timed;
	$timed = sub { laid($once) } if $is_fault;
	# After one copy, the file is not copied again.
	if (!$is_fault) { lay(); &$once() }
} else {
	&$timed() for 1 .. 20;
	write_down(100 * $round, do { my $took = 0; $took += &$timed() for 1 .. 100; $took });
	&$set_up() if $set_up;
	at_once(0, $service, $child) if $what eq "writes" && $is_fault;
}
my ($all, $calls, $last) = (0, 0, time);
$so_far = sub { write_down($calls, $all + $_[0]) };
while (1) {
	$all += &$timed();
	$calls += $round;
	if (time - $last > 0.02) { write_down($calls, $all); $last = time }
}
